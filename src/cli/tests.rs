mod docs;

use std::any::TypeId;
use std::num::{NonZeroU16, NonZeroU64};
use std::time::Duration;

use clap::CommandFactory;

use super::*;

/// Whether an argument takes a number or a duration, by its type or, of those that stay texts, by its name.
fn takes_number(arg: &clap::Arg) -> bool {
    let types = [
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<NonZeroU16>(),
        TypeId::of::<NonZeroU64>(),
        TypeId::of::<Duration>(),
    ];
    let found = arg.get_value_parser().type_id();
    let names = arg.get_value_names().unwrap_or_default();
    let is_named = ["N", "MAX", "DURATION", "SIZE", "RATE"].map(|name| names == [name]);
    types.iter().any(|of| found == *of) || is_named.contains(&true)
}

#[test]
fn a_negative_number_or_duration_is_an_error_of_its_argument() {
    let mut tested = 0;
    for command in Cli::command().get_subcommands() {
        for arg in command.get_arguments().filter(|arg| takes_number(arg)) {
            let (command, argument) = (command.get_name(), arg.get_long().unwrap());
            // What may be another argument is no value of one that takes numbers only.
            for value in ["-1", "x", if arg.is_allow_hyphen_values_set() { "-1s" } else { "-2" }] {
                let line = ["weir", command, &format!("--{argument}"), value];
                let error = Cli::try_parse_from(line).unwrap_err().to_string();
                let wanted = format!("error: invalid value '{value}' for '--{argument} ");
                assert!(error.starts_with(&wanted), "{line:?}: {error}");
                assert!(!error.contains("'-- "), "{line:?}: {error}");
                assert!(!error.contains("invalid digit"), "{line:?}: {error}");
                assert!(error.contains("write "), "{line:?}: {error}");
            }
            tested += 1;
        }
    }
    assert!(tested > 20, "{tested}");
}

fn started(args: &[&str]) -> Vec<String> {
    let args = args.iter().map(OsString::from).collect();
    like_the_reference(args).into_iter().map(|a| a.into_string().unwrap()).collect()
}

#[test]
fn a_program_named_ratelimit_serves() {
    assert_eq!(started(&["/bin/ratelimit"]), ["/bin/ratelimit", "serve"]);
    assert_eq!(started(&["/bin/ratelimit", "/bin/ratelimit"]), ["/bin/ratelimit", "serve"]);
    assert_eq!(started(&["ratelimit", "/bin/ratelimit"]), ["/bin/ratelimit", "serve"]);
    // The image's entry point with the command of the reference's Compose files.
    assert_eq!(started(&["/bin/weir", "/bin/ratelimit"]), ["/bin/ratelimit", "serve"]);
    assert_eq!(started(&["/bin/weir", "/bin/weir", "check"]), ["/bin/weir", "check"]);
    assert_eq!(started(&["weir", "check", "/bin/weir"]), ["weir", "check", "/bin/weir"]);
    assert_eq!(started(&["ratelimit", "check", "x"]), ["ratelimit", "check", "x"]);
    assert_eq!(started(&["weir"]), ["weir"]);
}

#[test]
fn the_command_line_is_well_formed() {
    command().debug_assert();
}

#[test]
fn the_help_has_each_command_in_its_group() {
    let help = command().render_help().to_string();
    let mut rest = help.as_str();
    for (group, first) in GROUPS {
        let (_, after) =
            rest.split_once(&format!("\n{group}:\n  {first} ")).unwrap_or_else(|| panic!("{help}"));
        rest = after;
    }
    for command in Cli::command().get_subcommands() {
        let line = format!("\n  {:11}  ", command.get_name());
        assert_eq!(help.matches(&line).count(), 1, "{line}: {help}");
    }
    assert!(help.contains("\nOptions:\n") && !help.contains("Commands:"), "{help}");
}

#[test]
fn rules_without_their_option_get_a_tip() {
    let tip = |path: &str| {
        let args = ["weir", "serve", path].map(OsString::from);
        add_tip(parse(&args).unwrap_err(), &args).to_string()
    };
    assert!(tip("x.yaml").contains("tip: name rules with --rules x.yaml"), "{}", tip("x.yaml"));
    assert!(!tip("--ruls").contains("name rules"), "{}", tip("--ruls"));
}
