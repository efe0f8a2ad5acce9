//! What is allowed: rule files, and the problems in them. Re-exports, with examples.

/// Rules as they are read from disk.
///
/// ```
/// use weir_library::rules::{Loaded, RuleOptions, Selection};
///
/// let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/library/rules.yaml");
/// let loaded = Loaded::read(&Selection::of(path), &RuleOptions::default(), None);
/// assert!(loaded.is_good(), "{}", loaded.render_errors());
/// assert_eq!(loaded.rules.only_domain(), Some("shop"));
/// ```
#[doc(inline)]
pub use weir_rules::Loaded;

/// What is accepted in rules, and how much of it.
///
/// ```
/// use weir_library::rules::{RuleFile, RuleOptions, RuleSet};
///
/// let file = |name: &str, key: &str| {
///     let text = format!("domain: shop\ndescriptors: [{{ key: {key}, rate: 2/m }}]");
///     RuleFile { name: name.to_owned(), text }
/// };
/// let files = [file("users.yaml", "user"), file("hosts.yaml", "host")];
/// // Without it, each file has a domain of its own.
/// let options = RuleOptions { merge_domains: true, ..RuleOptions::default() };
/// let (rules, problems) = RuleSet::compile(&files, &options, None);
/// assert!(problems.is_empty());
/// assert_eq!(rules.rules().len(), 2);
/// ```
#[doc(inline)]
pub use weir_rules::RuleOptions;

/// What is wrong in rules, where, and what to write instead.
///
/// ```
/// use weir_library::rules::{RuleFile, RuleOptions, RuleSet};
///
/// let text = "domain: shop\ndescriptors: [{ key: user, rate: 2/moon }]".to_owned();
/// let file = RuleFile { name: "shop.yaml".to_owned(), text };
/// let (_, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
/// let problem = &problems[0];
/// assert!(problem.is_error() && problem.position.is_some());
/// assert!(problem.to_string().starts_with("shop.yaml:2:"), "{problem}");
/// assert!(!problem.help.is_empty());
/// ```
#[doc(inline)]
pub use weir_rules::Problem;

/// Rules as a [`Limiter`](crate::Limiter) uses them.
///
/// ```
/// use weir_library::rules::{RuleFile, RuleOptions, RuleSet};
///
/// let text = "domain: shop\ndescriptors: [{ key: user, rate: 2/m }]".to_owned();
/// let file = RuleFile { name: "shop.yaml".to_owned(), text };
/// let (rules, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
/// assert!(problems.is_empty());
/// let limits = rules.rules().flat_map(|rule| rule.limits()).map(|limit| limit.to_string());
/// assert_eq!(limits.collect::<Vec<_>>(), ["2 per minute"]);
/// ```
#[doc(inline)]
pub use weir_rules::RuleSet;

/// Whether rules with a problem can be used.
///
/// ```
/// use weir_library::rules::{RuleFile, RuleOptions, RuleSet, Severity};
///
/// // Only the first document of a file is read.
/// let text = "domain: shop\ndescriptors: [{ key: user, rate: 2/m }]\n---\ndomain: club\n";
/// let file = RuleFile { name: "shop.yaml".to_owned(), text: text.to_owned() };
/// let (rules, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
/// // The rules can be used.
/// assert_eq!(problems[0].severity, Severity::Warning);
/// assert_eq!(rules.only_domain(), Some("shop"));
/// ```
#[doc(inline)]
pub use weir_rules::Severity;

/// Rules as they are written, from wherever the program has them.
///
/// ```
/// use weir_library::rules::{RuleFile, RuleOptions, RuleSet};
///
/// let text = "domain: shop\ndescriptors: [{ key: user, rate: 2/m }]".to_owned();
/// let file = RuleFile { name: "shop.yaml".to_owned(), text };
/// let (rules, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
/// assert!(problems.is_empty() && rules.domain("shop").is_some());
/// ```
#[doc(inline)]
pub use weir_rules::source::RuleFile;

/// Where rules are on disk.
///
/// ```
/// use weir_library::rules::Selection;
///
/// // A file, or a directory with files.
/// let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/library/rules.yaml");
/// let (files, problems) = Selection::of(path).read();
/// assert_eq!((files.len(), problems.len()), (1, 0));
/// ```
#[doc(inline)]
pub use weir_rules::source::Selection;
