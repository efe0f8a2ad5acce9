//! Makes `weir hit` accept the flags of envoyproxy/ratelimit's client: `-dial_string localhost:8081 -domain shop
//! -descriptors user=ann`. Runs before clap parses the arguments, because clap reads `-domain` as several short flags.

use std::ffi::OsString;

/// What a flag of envoyproxy/ratelimit's client is rewritten to.
#[derive(Clone, Copy)]
enum Becomes {
    ServerAddress,
    Domain,
    Descriptor,
    Switch(&'static str),
    Option(&'static str),
    Nothing,
}

const FLAGS: [(&str, Becomes); 8] = [
    ("dial_string", Becomes::ServerAddress),
    ("domain", Becomes::Domain),
    ("descriptors", Becomes::Descriptor),
    ("grpc-use-tls", Becomes::Switch("--tls")),
    ("grpc-server-ca-file", Becomes::Option("--ca")),
    ("grpc-cert-file", Becomes::Option("--cert")),
    ("grpc-key-file", Becomes::Option("--key")),
    // The protocol of that client's own traces (OTLP).
    ("oltp-protocol", Becomes::Nothing),
];

pub fn rewrite(args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_none_or(|command| command != "hit") {
        return args;
    }
    let mut args = args.into_iter();
    let mut rewritten: Vec<OsString> = args.by_ref().take(2).collect();
    let (mut address, mut domain, mut descriptors) = (None, None, Vec::new());
    while let Some(arg) = args.next() {
        let Some((becomes, value)) = reference_flag(&arg) else {
            rewritten.push(arg);
            continue;
        };
        if let Becomes::Switch(flag) = becomes {
            if value.is_none_or(|value| is_true(&value)) {
                rewritten.push(flag.into());
            }
            continue;
        }
        // Without a value, clap reports what is missing.
        let value = value.or_else(|| args.next()).unwrap_or_default();
        match becomes {
            Becomes::ServerAddress => address = Some(value),
            Becomes::Domain => domain = Some(value),
            Becomes::Descriptor => descriptors.push(value),
            Becomes::Option(flag) => rewritten.extend([flag.into(), value]),
            Becomes::Switch(_) | Becomes::Nothing => {}
        }
    }
    // Before the domain, which takes all arguments after it.
    if let Some(address) = address {
        rewritten.insert(2, address);
    }
    if domain.is_some() || !descriptors.is_empty() {
        rewritten.push("-d".into());
        rewritten.push(domain.unwrap_or_default());
        rewritten.extend(descriptors);
    }
    rewritten
}

/// Returns what a flag of the reference becomes, and its value if it is in the same argument. `--domain`
/// is a flag of both, and weir's takes descriptors too.
fn reference_flag(arg: &OsString) -> Option<(Becomes, Option<OsString>)> {
    let text = arg.to_str()?;
    let flag = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
    let (name, value) = match flag.split_once('=') {
        Some((name, value)) => (name, Some(value.into())),
        None => (flag, None),
    };
    let (_, becomes) = FLAGS.into_iter().find(|(known, _)| *known == name)?;
    (name != "domain" || !text.starts_with("--")).then_some((becomes, value))
}

/// Whether a value is true as Go reads it.
fn is_true(value: &OsString) -> bool {
    !matches!(value.to_str(), Some("0" | "f" | "F" | "false" | "FALSE" | "False"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(args: &str) -> String {
        let args = args.split(' ').map(OsString::from).collect();
        let args: Vec<String> =
            rewrite(args).into_iter().map(|arg| arg.into_string().unwrap()).collect();
        args.join(" ")
    }

    #[test]
    fn flags_of_the_reference_become_those_of_weir() {
        for (args, wanted) in [
            (
                "weir hit -dial_string localhost:8081 -domain d -descriptors k=v,k2=v2",
                "weir hit localhost:8081 -d d k=v,k2=v2",
            ),
            (
                "weir hit --descriptors=a=1 --repeat 3 --dial_string=h:1 -descriptors b=2 -domain=d",
                "weir hit h:1 --repeat 3 -d d a=1 b=2",
            ),
            (
                "weir hit -grpc-use-tls -grpc-server-ca-file ca -grpc-cert-file=c \
                 -grpc-key-file k -oltp-protocol http -domain d -descriptors a=1",
                "weir hit --tls --ca ca --cert c --key k -d d a=1",
            ),
            ("weir hit -grpc-use-tls=false -domain d", "weir hit -d d"),
            ("weir hit h:1 -d d a=1", "weir hit h:1 -d d a=1"),
            ("weir hit --domain d a=1", "weir hit --domain d a=1"),
            ("weir check -domain", "weir check -domain"),
        ] {
            assert_eq!(rewritten(args), wanted);
        }
    }
}
