//! Lists of values.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::super::{file, find};
use super::{counted, listed, load, problems, text};
use crate::source::{MAX_FILE_BYTES, Selection};
use crate::{Lists, Loaded, Problems, RuleOptions, compare};

#[test]
fn a_list_has_values_and_networks() {
    let set = listed(
        "- { key: ip, values_file: blocked.txt, L }\n- { key: ip, network: 10.1.0.0/16, L }\n- { key: ip, value: '*', L }\n\
         - { key: ip, value: bob, L }\n",
        "10.0.0.0/8\n10.1.2.0/24 # nearer than the descriptor\n203.0.113.7\nann\nbob\n",
    );
    for (value, rule) in [
        ("10.9.9.9", "ip_@blocked.txt"),
        ("10.1.9.9", "ip_10.1.0.0/16"),
        ("10.1.2.9", "ip_@blocked.txt"),
        ("203.0.113.7:80", "ip_@blocked.txt"),
        ("ann", "ip_@blocked.txt"),
        ("bob", "ip_bob"),
        ("carol", "ip_*"),
        // What stands for the list in names is no value of it.
        ("@blocked.txt", "ip_*"),
        ("blocked.txt", "ip_*"),
    ] {
        assert_eq!(find(&set, &[("ip", value)]), Some(rule), "{value}");
    }
    assert_eq!(counted(&set, "10.9.9.9:80").0, "10.9.9.9");
    assert_eq!(counted(&set, "ann").0, "ann");
    let rule = set.rules().next().unwrap();
    assert_eq!((rule.listed_values(), rule.path()), (Some(5), "ip_@blocked.txt"));
    let set = listed(
        "- { key: ip, values_file: blocked.txt, share_threshold: true, detailed_metric: true, L }\n",
        "10.0.0.0/8\nann\n",
    );
    for value in ["10.1.2.3", "ann"] {
        assert_eq!(counted(&set, value), ("@blocked.txt".into(), "ip_@blocked.txt".into()));
    }
}

#[test]
fn errors_of_lists_have_their_place() {
    let rules = text(
        "- { key: ip, values_file: lists/a.txt, L }\n- { key: user, values_file: lists/a.txt, L }\n",
    );
    let (dir, loaded) =
        load(&[("r.yaml", &rules), ("lists/a.txt", "10.0.0.0/8\nok\n 10.0.0.1/8\n")]);
    assert_eq!(
        problems(dir.path(), &loaded),
        [
            "lists/a.txt:3:2: error: config error, '10.0.0.1/8' has bits set after its prefix; write 10.0.0.0/8"
        ]
    );
    let list = dir.path().join("lists/a.txt");
    assert!(loaded.lists.iter().map(|it| &it.path).eq([&list]), "{:?}", loaded.lists);
    fs::remove_file(&list).unwrap();
    let again = |selection: Selection| {
        let loaded = Loaded::read(&selection, &RuleOptions::default(), None);
        problems(dir.path(), &loaded).join("\n")
    };
    let selection = Selection::of(dir.path());
    assert!(
        again(selection.clone()).starts_with(
            "r.yaml:3:27: error: config error, the list 'lists/a.txt': cannot be read: "
        )
    );
    fs::create_dir(&list).unwrap();
    assert!(
        again(selection.clone())
            .contains("r.yaml:3:27: error: config error, the list 'lists/a.txt': cannot be read: it is a directory and not a regular")
    );
    fs::remove_dir(&list).unwrap();
    fs::write(&list, b"ok\n\xff\n").unwrap();
    let reported = again(selection.clone());
    assert!(
        reported.starts_with("lists/a.txt:2:1: error: config error, the text is not UTF-8"),
        "{reported}"
    );
    fs::File::create(&list).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
    let reported = again(selection.clone());
    let wanted = "'lists/a.txt': the file has more than 67108864 bytes";
    assert!(reported.contains(wanted), "{reported}");
    fs::write(&list, "x".repeat(1_000)).unwrap();
    // As rule files may be links, lists may.
    fs::rename(&list, dir.path().join("lists/..a")).unwrap();
    symlink("..a", &list).unwrap();
    assert_eq!(again(selection), "");
}

#[test]
fn lists_are_below_the_rule_file() {
    for name in ["../a.txt", "/etc/passwd", "a/../../b", "", ".", "a/", "./a.txt"] {
        let rules = text(&format!("- {{ key: ip, values_file: '{name}', L }}\n"));
        let (dir, loaded) = load(&[("rules/r.yaml", &rules), ("a.txt", ""), ("rules/a.txt", "")]);
        let shown = problems(dir.path(), &loaded).join("\n");
        assert!(shown.contains(&format!("`values_file` is '{name}'")), "{name}: {shown}");
        assert!(loaded.lists.is_empty(), "nothing is read");
    }
}

#[test]
fn two_lists_of_a_level_have_no_network_in_common() {
    let rules = text(
        "- { key: ip, values_file: a.txt, L }\n- { key: ip, values_file: b.txt, L }\n\
         - { key: other, values_file: a.txt, L }\n- { key: ip, network: 192.0.2.0/24, L }\n",
    );
    let files = |a, b| load(&[("r.yaml", &rules), ("a.txt", a), ("b.txt", b)]);
    let (dir, loaded) = files("10.0.0.0/8\nann\n10.0.0.0/8\n", "10.0.0.0/9\nann\n");
    assert_eq!(problems(dir.path(), &loaded), Vec::<String>::new());
    let (dir, loaded) = files("10.0.0.0/8\n192.0.2.0/24", "\n10.0.0.0/8\n");
    let shown = problems(dir.path(), &loaded);
    assert_eq!(shown.len(), 2, "{shown:#?}");
    assert!(shown[0].starts_with(
        "r.yaml:4:27: error: config error, the network 10.0.0.0/8 is in both 'ip_@a.txt' (line 1) and \
         'ip_@b.txt' (line 2)"
    ), "{shown:#?}");
    assert!(
        shown[1].contains("192.0.2.0/24 is in both 'ip_@a.txt' (line 2) and 'ip_192.0.2.0/24';"),
        "{shown:#?}"
    );
}

#[test]
fn what_comes_over_xds_names_lists_in_one_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("blocked.txt"), "10.0.0.0/8\n").unwrap();
    let errors = |name: &str, directory: Option<&Path>| {
        let lists = Lists::InDirectory(directory.map(Into::into));
        let options = RuleOptions { lists, ..RuleOptions::default() };
        let rules = file("r", &text(&format!("- {{ key: ip, values_file: {name}, L }}\n")));
        let loaded = Loaded::compile(vec![rules], Problems::new(100), &options, None);
        problems(Path::new("nowhere"), &loaded).join("\n")
    };
    assert_eq!(errors("blocked.txt", Some(dir.path())), "");
    assert!(errors("blocked.txt", None).contains("set rules.values_dir"));
    assert!(errors("deep/a.txt", Some(dir.path())).contains("the plain name of a file"));
    assert!(errors("../a.txt", Some(dir.path())).contains("`values_file` is '../a.txt'"));
}

#[test]
fn a_long_list_is_searched() {
    let text: String = (0..100_000_u32)
        .map(|i| format!("{}\n", Ipv4Addr::from_bits(i.wrapping_mul(2_654_435_761))))
        .collect();
    let set = listed("- { key: ip, values_file: blocked.txt, L }\n", &text);
    for i in [0, 1, 99_999_u32] {
        let address = Ipv4Addr::from_bits(i.wrapping_mul(2_654_435_761)).to_string();
        assert!(find(&set, &[("ip", &address)]).is_some());
    }
    assert_eq!(find(&set, &[("ip", "0.0.0.1")]), None);
}

#[test]
fn addresses_are_not_counted_by_a_larger_network_than_their_line() {
    let set = listed(
        "- { key: ip, values_file: blocked.txt, group: { v4: 8, v6: 16 }, detailed_metric: true, L }\n\
         - { key: ip, network: 10.0.0.0/8, share_threshold: true, L }\n",
        "10.1.0.0/16\n10.1.2.0/24\n64.0.0.0/2\n192.0.2.7\n2001:db8::/32\n8000::/1\nann\n",
    );
    for (sent, key) in [
        ("10.1.9.9", "10.1.0.0/16"),
        ("10.1.2.3", "10.1.2.0/24"),
        ("10.1.2.3:80", "10.1.2.0/24"),
        ("65.1.2.3", "65.0.0.0/8"),
        ("192.0.2.7:80", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/32"),
        ("fe80::1", "fe80::/16"),
        ("ann", "ann"),
    ] {
        assert_eq!(counted(&set, sent), (key.to_owned(), format!("ip_{key}")), "{sent}");
    }
    // The descriptor of the larger network has a count of its own.
    assert_eq!(counted(&set, "10.9.9.9").0, "10.0.0.0/8");
}

#[test]
fn comments_and_the_order_of_lines_are_no_change() {
    let descriptors = "- { key: ip, values_file: blocked.txt, L }\n";
    let old = listed(descriptors, "192.0.2.1\nann\n");
    let new = listed(descriptors, "# by name\nann # a scraper\n\n192.0.2.1/32\n");
    assert!(compare(&old, &new).is_empty());
}

#[test]
fn merged_files_are_compared_once() {
    let (dir, _) = load(&[
        (
            "a.yaml",
            &text("- { key: ip, values_file: a.txt, L }\n- { key: ip, network: 11.0.0.0/8, L }\n"),
        ),
        ("b.yaml", &text("- { key: ip, network: 192.0.2.0/24, L }\n")),
        ("c.yaml", &text("- { key: user, L }\n")),
        ("a.txt", "11.0.0.0/8\n192.0.2.0/24\n"),
    ]);
    let options = RuleOptions { merge_domains: true, ..RuleOptions::default() };
    let loaded = Loaded::read(&Selection::of(dir.path()), &options, None);
    let shown = problems(dir.path(), &loaded);
    let places = [
        "a.yaml:4:23: error: config error, the network 11.0.0.0/8",
        "b.yaml:3:23: error: config error, the network 192.0.2.0/24",
    ];
    assert!(shown.iter().zip(places).all(|(shown, place)| shown.starts_with(place)), "{shown:#?}");
    assert_eq!(shown.len(), 2, "{shown:#?}");
}
