//! The look-up of values, networks and lists is compared with a plain model.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::super::find;
use super::{L, load};
use crate::MatchKind;
use weir_common::network::Network;

/// A rule of the model: a value as text, or a network.
#[derive(Clone, Debug)]
enum Named {
    Text(String),
    /// The canonical text of an address or a network, as a value.
    Canonical(Network),
    Network(Network),
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0..8_u32).prop_map(|bits| Ipv4Addr::from_bits(bits << 29 | bits).into()),
        (0..8_u128).prop_map(|bits| Ipv6Addr::from_bits(bits << 125 | bits).into()),
    ]
}

fn network() -> impl Strategy<Value = Network> {
    (address(), 0..=128_u8).prop_map(|(address, len)| {
        let len = if address.is_ipv4() { len % 33 } else { len };
        Network::new(address, len).unwrap()
    })
}

/// What a request may send: an address in one of its forms, a network, or a text.
fn sent() -> impl Strategy<Value = String> {
    prop_oneof![
        address().prop_map(|address| address.to_string()),
        address().prop_map(|address| std::net::SocketAddr::new(address, 80).to_string()),
        network().prop_map(|network| network.to_string()),
        "[ab]{0,2}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn finds_what_the_model_finds(
        named in prop::collection::vec(
            prop_oneof![
                2 => network().prop_map(Named::Network),
                1 => "[ab]{1,2}".prop_map(Named::Text),
                1 => network().prop_map(Named::Canonical),
            ], 0..12),
        group in (0..=32_u8, 0..=128_u8),
        in_list in prop::collection::vec(any::<bool>(), 12),
        has_wildcard in any::<bool>(),
        has_key in any::<bool>(),
        requests in prop::collection::vec(sent(), 1..20),
    ) {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        let groups = format!("group: {{ v4: {}, v6: {} }}", group.0, group.1);
        let (mut list, mut seen, mut model) = (String::new(), Vec::new(), Vec::new());
        for (named, in_list) in named.into_iter().zip(in_list) {
            let value = match &named {
                Named::Text(text) => text.clone(),
                Named::Network(network) | Named::Canonical(network) => network.to_string(),
            };
            if seen.contains(&value) {
                continue;
            }
            let in_list = in_list && !matches!(named, Named::Canonical(_));
            if in_list {
                list += &format!("{value}\n");
            } else {
                text += &match named {
                    Named::Network(_) => format!("- {{ key: ip, network: '{value}', {groups}, {L} }}\n"),
                    _ => format!("- {{ key: ip, value: '{value}', {L} }}\n"),
                };
            }
            seen.push(value.clone());
            let name = if in_list { "ip_@blocked.txt".to_owned() } else { format!("ip_{value}") };
            model.push((named, name));
        }
        text += &format!("- {{ key: ip, values_file: blocked.txt, {groups}, {L} }}\n");
        for (is_there, value) in [(has_wildcard, "value: 'a*', "), (has_key, "")] {
            if is_there {
                text += &format!("- {{ key: ip, {value}{L} }}\n");
            }
        }
        let (_dir, loaded) = load(&[("r.yaml", &text), ("blocked.txt", &list)]);
        prop_assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
        let set = loaded.rules;
        for request in requests {
            let as_text = model.iter().find(|(named, _)| matches!(named, Named::Text(text) if *text == request));
            let value = Network::from_value(&request);
            let longest = model.iter().filter_map(|(named, name)| match named {
                Named::Network(network) if network.contains(&value?) => Some((network.prefix_len(), name)),
                _ => None,
            }).max_by_key(|(len, _)| *len);
            let counted = longest.and_then(|(len, _)| {
                let (v4, v6) = (group.0.max(len), group.1.max(len));
                Some(value?.truncate(v4, v6).to_string())
            });
            let canonical = value.map(|value| value.to_string());
            let named = |counted: &Option<String>| model.iter().find_map(|(named, name)| match named {
                Named::Canonical(network) => (Some(network.to_string()) == *counted).then(|| name.clone()),
                _ => None,
            });
            let wildcard = (has_wildcard && request.starts_with('a')).then(|| "ip_a*".to_owned());
            let wanted = as_text.map(|(_, name)| name.clone())
                .or_else(|| named(&canonical))
                .or_else(|| named(&counted))
                .or(longest.map(|(_, name)| name.clone()))
                .or(wildcard)
                .or(has_key.then(|| "ip".to_owned()));
            let entries = [("ip", request.as_str())];
            prop_assert_eq!(find(&set, &entries), wanted.as_deref(), "{}", request);
            let domain = set.domain("d").unwrap();
            let trace = domain.trace(&entries);
            prop_assert_eq!(trace.end.map(|end| end.text), wanted.as_deref());
            let step = &trace.steps[0];
            let first = step.level.matches(entries[0]).first().map(|first| (first.text, first.kind));
            prop_assert_eq!(first, step.matched.map(|it| (it.text, it.kind)));
            if let Some(matched) = step.matched.filter(|it| matches!(it.kind, MatchKind::Network | MatchKind::List))
                && let Some(within) = matched.within.and_then(|it| it.network)
            {
                prop_assert!(value.is_some_and(|value| within.contains(&value)));
                prop_assert_eq!(Some(within.prefix_len()), longest.map(|(len, _)| len));
            }
            // No two rules count by the same key.
            let keys = domain.key_values(&entries);
            let key = keys.first().map_or(request.as_str(), |(_, text)| text);
            match step.matched.map(|it| it.kind) {
                Some(MatchKind::Network | MatchKind::List) if as_text.is_none() => {
                    prop_assert_eq!(Some(key), counted.as_deref());
                }
                Some(MatchKind::Value) => prop_assert_eq!(Some(format!("ip_{key}")), wanted),
                _ => prop_assert_eq!(key, request.as_str()),
            }
        }
    }
}
