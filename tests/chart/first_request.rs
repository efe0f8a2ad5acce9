//! The first steps of docs/install.md: they wait for the pods, and the first request ends with the status that the page promises.

use std::process::Command;

use crate::helm::Helm;
use crate::kubelet::Node;
use crate::start::wait_until_ready;
use crate::support::{read, tool};

/// Returns the blocks of shell commands of the section about Helm.
fn blocks() -> Vec<String> {
    let page = read("docs/install.md");
    let (_, section) = page.split_once("\n## Helm\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(str::to_owned).collect()
}

#[test]
fn a_request_is_repeated_until_it_is_over_the_limit() {
    let (Some(helm), Some(_)) = (Helm::newest(), tool("curl", "WEIR_CURL")) else { return };
    let running = Node::new(&helm.chart().file("minimal").render()).start();
    wait_until_ready(&running);
    let block = blocks().into_iter().find(|block| block.contains("curl ")).expect("a request");
    assert_eq!(block.matches("localhost:8080").count(), 1, "{block}");
    let script = block.replace("localhost:8080", &running.http.to_string());
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (allowed, last) = printed.trim_end().rsplit_once('\n').expect("several requests");
    assert_eq!(last, "429", "{printed}");
    let count = allowed.lines().count();
    assert!(allowed.lines().all(|status| status == "200"), "{printed}");
    // A minute may end meanwhile.
    assert!((5..=10).contains(&count), "{printed}");
}

#[test]
fn the_first_steps_wait_for_the_pods() {
    let commands = blocks().join("\n");
    let position =
        |words: &str| commands.find(words).unwrap_or_else(|| panic!("{words} in {commands}"));
    let install = position("helm install weir ");
    let wait = position("kubectl --namespace weir rollout status deployment/weir");
    let forward = position("port-forward service/weir 8080");
    assert!(install < wait && wait < forward, "{commands}");
}
