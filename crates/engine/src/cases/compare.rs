//! Compares a filter's result with the snapshot of a test case.

use similar::{Algorithm, capture_diff_slices};

use super::snapshot::{COST, EFFECTS, Snapshot, WORDS};
use crate::config::ConfigNode;

/// How a filter's result differs from the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// No difference.
    None,
    /// There is no snapshot yet.
    New,
    /// Lines that differ: they begin with `-` if only the snapshot has them, with `+` if only the result has
    /// them, and with a space if both have.
    Lines(Vec<String>),
}

impl Snapshot {
    /// Compares with `now`, ignoring cost and the order of top-level nodes.
    pub fn compare(&self, now: &Snapshot) -> Difference {
        let ((old, _), (new, _)) = (self.in_order(), now.in_order());
        match old == new {
            true => Difference::None,
            false => Difference::Lines(differing(&old, &new)),
        }
    }

    /// Compares with the verdict that another client got, ignoring effects beside the verdict.
    pub(super) fn compare_verdicts(&self, other: &Snapshot) -> Difference {
        self.verdict_alone().compare(&other.verdict_alone())
    }

    /// Whether the verdict, or the lookups before it, may be memoized.
    pub(super) fn is_remembered(&self) -> bool {
        let says_so = |node: &ConfigNode| {
            let asks_so = node.name == "ask" && node.properties.iter().any(|(name, _)| name == "remember");
            node.parent.is_none() && (node.name == "remember" || asks_so)
        };
        self.0.iter().any(says_so)
    }

    /// The snapshot without effects beside the verdict. Their nodes have no children and follow all others.
    fn verdict_alone(&self) -> Snapshot {
        let beside = |node: &ConfigNode| EFFECTS.contains(&node.name.as_str()) && node.parent.is_none();
        let verdict = self.0.iter().take_while(|node| !beside(node));
        Snapshot(verdict.cloned().collect())
    }

    /// The cost in the snapshot and in `now`, if they differ.
    pub fn cost_change(&self, now: &Snapshot) -> Option<(String, String)> {
        let ((_, was), (_, is)) = (self.in_order(), now.in_order());
        let (was, is) = (was.first()?.clone(), is.first()?.clone());
        (was != is).then_some((was, is))
    }

    /// The lines of each top-level node and its children, in the order of [`WORDS`], and those of the cost
    /// separately.
    fn in_order(&self) -> (Vec<String>, Vec<String>) {
        let mut tops: Vec<(usize, Vec<String>)> = Vec::new();
        let top_nodes = self.0.iter().filter(|node| node.parent.is_none());
        let mut names = top_nodes.map(|node| node.name.as_str());
        for line in self.lines() {
            // A line that is indented or closes a block belongs to the node above.
            match tops.last_mut() {
                Some((_, lines)) if line.starts_with([' ', '}']) => lines.push(line),
                _ => {
                    let name = names.next().unwrap_or_default();
                    let rank = WORDS.iter().position(|known| *known == name);
                    tops.push((rank.unwrap_or(WORDS.len()), vec![line]));
                }
            }
        }
        tops.sort_by_key(|(rank, _)| *rank);
        let (cost, rest): (Vec<_>, Vec<_>) = tops
            .into_iter()
            .partition(|(rank, _)| WORDS.get(*rank) == Some(&COST));
        let lines = |tops: Vec<(usize, Vec<String>)>| tops.into_iter().flat_map(|(_, lines)| lines).collect();
        (lines(rest), lines(cost))
    }
}

/// The lines of both in order: common lines after a space, the others after `-` or `+`.
fn differing(old: &[String], new: &[String]) -> Vec<String> {
    let changes = capture_diff_slices(Algorithm::Myers, old, new);
    let lines = changes.iter().flat_map(|change| change.iter_changes(old, new));
    lines
        .map(|line| format!("{} {}", line.tag(), line.value()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{number, word};
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(String::from).collect()
    }

    #[test]
    fn what_both_have_is_kept_in_order() {
        assert_eq!(
            differing(&words("a b c d"), &words("a x c d e")),
            ["  a", "- b", "+ x", "  c", "  d", "+ e"]
        );
        assert_eq!(differing(&[], &words("a")), ["+ a"]);
        assert_eq!(differing(&words("a"), &[]), ["- a"]);
    }

    /// The order of lines in a file is up to the author, and cost is not a difference.
    #[test]
    fn order_and_cost_do_not_matter() {
        let mut recorded = Snapshot::default();
        recorded.add(COST, []);
        recorded.add("count", [word("b"), number(1)]);
        recorded.add("answer", [word("NOERROR")]);
        recorded.add_in(Some(2), "record", [word("x.")]);
        let mut now = Snapshot::default();
        now.add("answer", [word("NOERROR")]);
        now.add_in(Some(0), "record", [word("x.")]);
        now.add("count", [word("b"), number(1)]);
        assert_eq!(recorded.compare(&now), Difference::None);
        now.add("count", [word("c"), number(1)]);
        let Difference::Lines(lines) = recorded.compare(&now) else {
            panic!("they differ")
        };
        assert_eq!(lines.last().map(String::as_str), Some("+ count \"c\" 1"));
    }
}
