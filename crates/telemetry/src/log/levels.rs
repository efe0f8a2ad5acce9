//! Log levels, such as `info,h2=debug`: one for weir, and one for each library that is named.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Filter};

/// The level of weir if none is given, as in `h2=debug`.
const DEFAULT_LEVEL: LevelFilter = LevelFilter::INFO;

/// What is logged of libraries that are not named. They log warnings about clients without throttling them.
const MAX_LIBRARY_LEVEL: LevelFilter = LevelFilter::ERROR;

const MAX_LIBRARIES: usize = 32;

/// The level of weir, and those of libraries, in the order in which they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevels {
    weir: LevelFilter,
    libraries: Vec<(String, LevelFilter)>,
}

/// Why levels could not be read; says what to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write a level (off, error, warn, info, debug or trace), and library=level for libraries, with \
     commas between them: info,h2=debug"
)]
pub struct LevelsError;

impl FromStr for LogLevels {
    type Err = LevelsError;

    fn from_str(text: &str) -> Result<LogLevels, LevelsError> {
        let (mut weir, mut libraries) = (None, Vec::new());
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                None if weir.is_none() => weir = Some(level(part)?),
                None => return Err(LevelsError),
                Some((library, name)) => {
                    libraries.push((target(library.trim())?, level(name.trim())?));
                }
            }
        }
        if libraries.len() > MAX_LIBRARIES {
            return Err(LevelsError);
        }
        Ok(LogLevels { weir: weir.unwrap_or(DEFAULT_LEVEL), libraries })
    }
}

fn level(name: &str) -> Result<LevelFilter, LevelsError> {
    let level: LevelFilter = name.parse().map_err(|_| LevelsError)?;
    // A number is a level of tracing, and so is an empty text.
    if level.to_string().eq_ignore_ascii_case(name) { Ok(level) } else { Err(LevelsError) }
}

/// Reads the name of a library, or of one of its modules, with `-` for `_` as packages have it.
fn target(name: &str) -> Result<String, LevelsError> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':');
    match !name.is_empty() && name.len() <= 64 && name.chars().all(is_name) {
        true => Ok(name.replace('-', "_")),
        false => Err(LevelsError),
    }
}

impl fmt::Display for LogLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.weir)?;
        self.libraries.iter().try_for_each(|(library, level)| write!(f, ",{library}={level}"))
    }
}

impl LogLevels {
    fn targets(&self) -> Targets {
        Targets::new()
            .with_default(self.weir.min(MAX_LIBRARY_LEVEL))
            .with_target("weir", self.weir)
            .with_targets(self.libraries.iter().flat_map(|(library, level)| {
                targets_of(library).map(move |target| (target, *level))
            }))
    }
}

/// Where a module of weir may have moved to.
const ROOMS: [&str; 6] = [
    "weir_",
    "weir_common::",
    "weir_limiter::",
    "weir::net::",
    "weir::rls::",
    "weir::rule_sources::",
];

/// Returns the targets of a library or module. A module of weir, such as `weir::limiter`, may be a package
/// of that name, or a module of a package or of a room of the server.
fn targets_of(library: &str) -> impl Iterator<Item = String> {
    let module = library.strip_prefix("weir::");
    let rooms = module.map(|module| ROOMS.map(|room| format!("{room}{module}")));
    [library.to_owned()].into_iter().chain(rooms.into_iter().flatten())
}

/// The levels that apply now, which can be changed while the process runs.
#[derive(Clone, Debug)]
pub struct ActiveLevels(Arc<ArcSwap<(LogLevels, Targets)>>);

impl ActiveLevels {
    pub(super) fn new(levels: LogLevels) -> ActiveLevels {
        let targets = levels.targets();
        ActiveLevels(Arc::new(ArcSwap::from_pointee((levels, targets))))
    }

    pub fn get(&self) -> LogLevels {
        self.0.load().0.clone()
    }

    /// Changes the levels of all threads.
    pub fn set(&self, levels: LogLevels) {
        let targets = levels.targets();
        self.0.store(Arc::new((levels, targets)));
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Lets events pass, and no spans: those are for traces, which have a layer of their own.
impl<S> Filter<S> for ActiveLevels {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        !metadata.is_span() && self.0.load().1.would_enable(metadata.target(), metadata.level())
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        let enabled = self.0.load().1.would_enable(metadata.target(), metadata.level());
        if enabled && !metadata.is_span() { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let levels = &self.0.load().0;
        let libraries = levels.libraries.iter().map(|(_, level)| *level);
        libraries.chain([levels.weir]).max()
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn read(text: &str) -> LogLevels {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn levels_are_read_and_shown() {
        for (text, shown) in [
            ("info", "info"),
            ("DEBUG", "debug"),
            ("off", "off"),
            ("info,h2=debug", "info,h2=debug"),
            (" warn , tokio-util = trace,h2=off", "warn,tokio_util=trace,h2=off"),
            ("h2=debug", "info,h2=debug"),
            ("warn,weir::limiter=debug", "warn,weir::limiter=debug"),
        ] {
            assert_eq!(read(text).to_string(), shown);
        }
        let many = vec!["a=info"; 33].join(",");
        for bad in
            ["", "loud", "info,debug", "info,", "=info", "h2=", "h2=loud", "a b=info", "5", &many]
        {
            assert_eq!(bad.parse::<LogLevels>(), Err(LevelsError), "{bad}");
        }
    }

    #[test]
    fn libraries_are_raised_by_name_only() {
        for (text, target, level, enabled) in [
            ("debug", "weir::limiter", Level::DEBUG, true),
            ("warn,weir::xds=debug", "weir::rule_sources::xds::exchange", Level::DEBUG, true),
            ("debug", "h2::codec", Level::WARN, false),
            ("debug", "h2::codec", Level::ERROR, true),
            ("off", "h2", Level::ERROR, false),
            ("info,h2=debug", "h2::codec", Level::DEBUG, true),
            ("info,h2=debug", "hyper", Level::INFO, false),
            ("info,h2=debug", "weir", Level::DEBUG, false),
            ("warn,weir::limiter=debug", "weir_limiter::log", Level::DEBUG, true),
            ("warn,weir::limiter=debug", "weir_limiter::log", Level::DEBUG, true),
            ("warn,weir::threads=debug", "weir_common::threads", Level::DEBUG, true),
            ("warn,weir::controls=debug", "weir_controls::audit", Level::DEBUG, true),
            ("debug", "weir_common::threads", Level::DEBUG, true),
            ("warn", "weir_common::threads", Level::INFO, false),
            ("warn,weir::limiter=debug", "weir::loader", Level::INFO, false),
        ] {
            let targets = read(text).targets();
            assert_eq!(targets.would_enable(target, &level), enabled, "{text}: {target} {level}");
        }
    }

    #[test]
    fn the_hint_covers_every_level() {
        let hint = |text| Filter::<()>::max_level_hint(&ActiveLevels::new(read(text)));
        assert_eq!(hint("info"), Some(LevelFilter::INFO));
        assert_eq!(hint("info,h2=debug"), Some(LevelFilter::DEBUG));
        assert_eq!(hint("off"), Some(LevelFilter::OFF));
    }
}
