//! Reads the root of a rule file or xDS resource: `domain`, `charge`, `on_store_failure` and `descriptors`.

use super::descriptor::Above;
use super::reader::Reader;
use crate::matcher::MatcherNode as Tree;
use crate::model::key::Section;
use crate::syntax::position::Position;
use crate::syntax::tree::{Content, Node};
use weir_common::failure::OnStoreFailure;

#[derive(Default)]
pub(crate) struct Root<'n> {
    pub domain: String,
    pub domain_position: Position,
    /// Whether `charge` is `together`: all descriptors of a request are charged, or none.
    pub together: bool,
    pub on_store_failure: Option<OnStoreFailure>,
    descriptors: Vec<&'n Node<'n>>,
}

impl Reader<'_> {
    /// Reads the root; none if it is not a map.
    pub fn root<'n>(&mut self, node: Option<&'n Node<'n>>) -> Option<Root<'n>> {
        let Some(node) = node.filter(|node| !node.is_null()) else {
            self.empty_domain(Position::default());
            return None;
        };
        if !matches!(node.content(), Content::Map(_)) {
            let what = node.described();
            let message = format!("error loading config file: the root is {what}, not a map");
            let help = "start the file with `domain: NAME` and `descriptors:`";
            self.error(node.position, message, &node.shown(), help);
            return None;
        }
        let mut root = Root { domain_position: node.position, ..Root::default() };
        for (key, value) in self.fields(node, Section::Root) {
            match key {
                "domain" => {
                    root.domain = self.written(value, key);
                    root.domain_position = value.position;
                }
                "charge" => root.together = self.charge(value).unwrap_or(false),
                "on_store_failure" => root.on_store_failure = self.failure_policy(value),
                "descriptors" => root.descriptors = self.maps(value, key),
                _ => {}
            }
        }
        self.together = root.together;
        if root.domain.is_empty() {
            self.empty_domain(root.domain_position);
        }
        Some(root)
    }

    fn empty_domain(&mut self, position: Position) {
        let help = "write `domain: NAME`, the domain that Envoy's filter is configured with";
        self.error(position, "config file cannot have empty domain", "", help);
    }

    pub fn descriptors(&mut self, root: &Root<'_>, tree: &mut Tree) {
        let domain = &root.domain;
        let above = Above { name: domain, domain, entries: &[], value_to_metric: false };
        // A merged domain has those of other files, which are compared with each other already.
        let known = tree.children().len();
        self.level(&root.descriptors, &above, tree);
        self.report_merged();
        tree.shrink();
        self.equal_networks(tree, known);
    }
}
