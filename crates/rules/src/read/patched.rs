//! Reads a rule again as the patches of an overlay change it.

use std::sync::Arc;

use super::super::Origin;
use super::super::overlay::{APPLY_EFFORT, PatchedKeys, Patcher, READ_EFFORT, State};
use super::super::position::Position;
use super::super::problem::Problem;
use super::super::problems::Problems;
use super::super::tree::Node;
use super::budget::rule_bytes;
use super::limits::LimitFields;
use super::{Budget, Descriptor, Reader, Rule, limit_nodes};

/// The fields of a descriptor.
type FieldNodes<'f, 'n> = &'f [(&'static str, &'n Node<'n>)];

/// The number of problems of a patched rule that are reported, errors and warnings each.
const MAX_PROBLEMS: usize = 10;

/// A rule as it was delivered, and patches to try on it.
struct Trial<'t, 'n> {
    keys: PatchedKeys<'n>,
    /// The bytes of the rule as it was delivered.
    bytes: usize,
    position: Position,
    name: &'t str,
}

/// A rule as patches change it.
struct Attempt {
    /// None if the rule is invalid.
    read: Option<Descriptor>,
    problems: Vec<Problem>,
    budget: Budget,
}

impl Attempt {
    fn failed(problem: Problem, budget: &Budget) -> Attempt {
        Attempt { read: None, problems: vec![problem], budget: budget.clone() }
    }
}

impl Reader<'_> {
    /// Applies the patches that match a descriptor, whose path in the domain is `name`. Returns the
    /// states of the patches for the descriptors below it, and the patches that changed it.
    pub(super) fn apply_patches<'n>(
        &mut self,
        position: Position,
        fields: FieldNodes<'_, 'n>,
        states: &[State],
        read: &mut Descriptor,
        name: &str,
    ) -> (Vec<State>, Arc<[Origin]>) {
        let Some(patcher) = self.patcher.take() else { return Default::default() };
        let (next, matched) = patcher.advance(states, &read.key, &read.value);
        let mut origins = Arc::default();
        let charge = patcher.together().filter(|together| *together != self.together);
        // A set with an error is refused, whatever its patches do.
        if read.rate_limit.is_some()
            && (!matched.is_empty() || charge.is_some())
            && !self.problems.has_errors()
        {
            let bytes = rule_bytes(name, 0, read.rate_limit.as_ref().map(LimitFields::bytes));
            let keys = self.patched_keys(fields);
            let trial = Trial { keys, bytes, position, name };
            let together = charge.unwrap_or(self.together);
            origins = self.fit(patcher, &trial, matched, together, read);
        }
        self.patcher = Some(patcher);
        (next, origins)
    }

    /// The keys of a valid descriptor that patches change. Metadata is read again only if a patch sets
    /// it.
    fn patched_keys<'n>(&mut self, fields: FieldNodes<'_, 'n>) -> PatchedKeys<'n> {
        let others = ["descriptors", "metadata", "rate_limit", "rate_limits"];
        let rule = fields.iter().filter(|(field, _)| !others.contains(field));
        let rule = rule.map(|(field, node)| (*field, (*node).clone())).collect();
        let (rate_limit, rate_limits) = limit_nodes(fields);
        // Its problems were reported before.
        let mut problems = Problems::new(1);
        let limits = self.quiet(&mut problems, &mut Vec::new(), self.together, |reader| {
            reader.limit_maps(&rate_limit, rate_limits)
        });
        PatchedKeys { rule, limits }
    }

    /// Replaces `read` by what becomes of it with the patches that fit. Returns these.
    fn fit(
        &mut self,
        patcher: &mut Patcher,
        trial: &Trial<'_, '_>,
        matched: Vec<u32>,
        together: bool,
        read: &mut Descriptor,
    ) -> Arc<[Origin]> {
        patcher.set_matched(&matched);
        let all = self.attempt(patcher, trial, &matched, together, None);
        if all.read.is_some() && all.problems.is_empty() {
            return self.accept(patcher, all, matched, read);
        }
        let rule = self.described(trial);
        if all.read.is_none() && together != self.together {
            let bare = self.attempt(patcher, trial, &[], together, None);
            let as_delivered = self.attempt(patcher, trial, &matched, self.together, None);
            if bare.read.is_none() || as_delivered.read.is_some() {
                let cause = if bare.read.is_none() { bare } else { all };
                // The domain is compiled again without this `charge`.
                patcher.fail_domain(&rule, cause.problems);
                return Arc::default();
            }
        }
        let (kept, best) = match (all.read.is_some(), matched.last()) {
            (true, Some(&last)) => {
                let all = self.attempt(patcher, trial, &matched, together, Some(last));
                (matched, Some(all))
            }
            _ => self.fitting(patcher, trial, matched, together),
        };
        let Some(best) = best else { return Arc::default() };
        if !best.problems.is_empty() {
            let delivered = self.attempt(patcher, trial, &[], self.together, None).problems;
            let is_new = |problem: &&Problem| {
                delivered.iter().all(|delivered| delivered.message != problem.message)
            };
            patcher.warn(&rule, best.problems.iter().filter(is_new).cloned().collect());
        }
        self.accept(patcher, best, kept, read)
    }

    /// Finds the patches that fit a rule together, where not all do. Records the others.
    fn fitting(
        &mut self,
        patcher: &mut Patcher,
        trial: &Trial<'_, '_>,
        matched: Vec<u32>,
        together: bool,
    ) -> (Vec<u32>, Option<Attempt>) {
        let (mut kept, mut best) = (Vec::new(), None);
        let mut pending: Vec<(u32, Vec<Problem>)> =
            matched.into_iter().map(|patch| (patch, Vec::new())).collect();
        loop {
            let before = kept.len();
            let mut failed = Vec::new();
            for (patch, _) in pending {
                let mut candidate = kept.clone();
                candidate.insert(candidate.partition_point(|&known| known < patch), patch);
                let attempt = self.attempt(patcher, trial, &candidate, together, Some(patch));
                match attempt.read.is_some() {
                    true => (kept, best) = (candidate, Some(attempt)),
                    false => failed.push((patch, attempt.problems)),
                }
            }
            pending = failed;
            // A patch may need a later one, as `burst` needs `algorithm: gcra`.
            if pending.is_empty() || kept.len() == before {
                break;
            }
        }
        let rule = self.described(trial);
        for (patch, problems) in pending.into_iter().filter(|(_, problems)| !problems.is_empty()) {
            patcher.fail(patch, &rule, problems);
        }
        (kept, best)
    }

    fn accept(
        &mut self,
        patcher: &mut Patcher,
        attempt: Attempt,
        patches: Vec<u32>,
        read: &mut Descriptor,
    ) -> Arc<[Origin]> {
        let Some(mut patched) = attempt.read else { return Arc::default() };
        if !patches.iter().any(|&patch| patcher.patch(patch).sets_metadata()) {
            patched.metadata = read.metadata.take();
        }
        *read = patched;
        self.budget = attempt.budget;
        patcher.set_patched(patches)
    }

    /// Reads a rule with patches. The positions of all problems are in the patch `blamed`, if there is
    /// one.
    fn attempt(
        &mut self,
        patcher: &mut Patcher,
        trial: &Trial<'_, '_>,
        patches: &[u32],
        together: bool,
        blamed: Option<u32>,
    ) -> Attempt {
        if !patcher.spend(READ_EFFORT + APPLY_EFFORT * patches.len() as u64) {
            return Attempt { read: None, problems: Vec::new(), budget: self.budget.clone() };
        }
        let origin = blamed.map(|blamed| patcher.patch(blamed).origin.clone());
        let place = origin.as_ref().map(|origin| origin.position);
        let mut keys = match place {
            Some(position) => trial.keys.moved(position),
            None => trial.keys.clone(),
        };
        for &patch in patches {
            let place = place.filter(|_| blamed != Some(patch));
            if let Err(mut problem) = keys.apply(patcher.patch(patch), place) {
                if let (Some(origin), Some(_)) = (&origin, place) {
                    (problem.file, problem.position) =
                        (origin.file.to_string(), Some(origin.position));
                }
                return Attempt::failed(*problem, &self.budget);
            }
        }
        let position = place.unwrap_or(trial.position);
        let fields = keys.into_fields(position);
        let fields: Vec<(&'static str, &Node<'_>)> =
            fields.iter().map(|(field, node)| (*field, node)).collect();
        let mut problems = Problems::new(MAX_PROBLEMS);
        let (read, budget) = self.quiet(&mut problems, &mut Vec::new(), together, |reader| {
            if let Some(origin) = &origin {
                reader.file = origin.file.clone();
            }
            let read = reader.keys(position, &fields);
            let limit_bytes = read.rate_limit.as_ref().map(LimitFields::bytes);
            let bytes = rule_bytes(trial.name, 0, limit_bytes);
            reader.spend(position, bytes.saturating_sub(trial.bytes));
            (read, reader.budget.clone())
        });
        let is_good = !problems.has_errors();
        let mut problems = problems.into_parts().0;
        for problem in problems.iter_mut().filter(|problem| problem.position == place) {
            problem.help += "; `KEY: null` in `set` removes a key of the rule";
        }
        Attempt { read: is_good.then_some(read), problems, budget }
    }

    /// Calls `read` with a reader that adds neither problems nor rules.
    fn quiet<T>(
        &self,
        problems: &mut Problems,
        rules: &mut Vec<Arc<Rule>>,
        together: bool,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        let mut reader = Reader {
            file: self.file.clone(),
            problems,
            budget: self.budget.clone(),
            rules,
            previous: self.previous,
            series: self.series,
            max_log_bytes: self.max_log_bytes,
            near_limit_ratio: self.near_limit_ratio,
            together,
            lint: false,
            replaced: Vec::new(),
            patcher: None,
        };
        read(&mut reader)
    }

    /// The name and the place of a rule.
    fn described(&self, trial: &Trial<'_, '_>) -> String {
        let origin = Origin { file: self.file.clone(), position: trial.position };
        format!("'{}' ({origin})", trial.name)
    }
}
