//! Merges stacks into one tree by their common outermost calls.

use std::collections::BTreeSet;

use super::location::Call;

/// A call, with the members whose stacks pass through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) call: Call,
    pub(super) members: BTreeSet<usize>,
    /// The members whose stacks end here.
    pub(super) ends: BTreeSet<usize>,
    /// The calls from here, largest first.
    pub(super) calls: Vec<Node>,
}

/// Builds the tree of `stacks`, each a member and its calls, outermost first.
pub(super) fn fold<'a>(stacks: impl IntoIterator<Item = (usize, &'a [Call])>) -> Vec<Node> {
    let mut roots = Vec::new();
    for (member, calls) in stacks {
        add(&mut roots, member, calls);
    }
    sort(&mut roots);
    roots
}

fn add(mut nodes: &mut Vec<Node>, member: usize, calls: &[Call]) {
    for (at, call) in calls.iter().enumerate() {
        let known = nodes.iter().position(|node| node.call == *call);
        let index = known.unwrap_or_else(|| {
            nodes.push(Node {
                call: call.clone(),
                members: BTreeSet::new(),
                ends: BTreeSet::new(),
                calls: Vec::new(),
            });
            nodes.len() - 1
        });
        let node = &mut nodes[index];
        node.members.insert(member);
        if at + 1 == calls.len() {
            node.ends.insert(member);
        }
        nodes = &mut node.calls;
    }
}

/// Sorts by number of members, then by call.
fn sort(nodes: &mut [Node]) {
    nodes.sort_by(|a, b| {
        let by_number = b.members.len().cmp(&a.members.len());
        by_number.then_with(|| a.call.cmp(&b.call))
    });
    // The recursion is as deep as the stacks, which are bounded (`MAX_FRAMES`).
    for node in nodes {
        sort(&mut node.calls);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn calls(functions: &[u8]) -> Vec<Call> {
        let call = |n: &u8| Call {
            file: "a.py".to_owned(),
            function: n.to_string(),
            line: 1,
        };
        functions.iter().map(call).collect()
    }

    fn fold_stacks(stacks: &[(usize, Vec<Call>)]) -> Vec<Node> {
        fold(stacks.iter().map(|(member, calls)| (*member, &**calls)))
    }

    /// Collects every stack in the tree.
    fn unfold(nodes: &[Node], callers: &[Call], all: &mut BTreeSet<(usize, Vec<Call>)>) {
        for node in nodes {
            let path = [callers, std::slice::from_ref(&node.call)].concat();
            all.extend(node.ends.iter().map(|member| (*member, path.clone())));
            unfold(&node.calls, &path, all);
        }
    }

    fn check(nodes: &[Node]) {
        let distinct: BTreeSet<_> = nodes.iter().map(|node| &node.call).collect();
        assert_eq!(distinct.len(), nodes.len(), "a call is there once");
        assert!(
            nodes
                .windows(2)
                .all(|two| two[0].members.len() >= two[1].members.len())
        );
        for node in nodes {
            let callees = node.calls.iter().flat_map(|node| &node.members);
            let all: BTreeSet<usize> = callees.chain(&node.ends).copied().collect();
            assert_eq!(
                all, node.members,
                "everybody at a call ends there or goes on"
            );
            check(&node.calls);
        }
    }

    fn stacks() -> impl Strategy<Value = Vec<(usize, Vec<Call>)>> {
        vec((0usize..12, vec(0u8..3, 1..6)), 0..30).prop_map(|stacks| {
            let stacks = stacks.into_iter();
            stacks
                .map(|(member, functions)| (member, calls(&functions)))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn tree_contains_exactly_its_stacks(stacks in stacks()) {
            let tree = fold_stacks(&stacks);
            check(&tree);
            let mut all = BTreeSet::new();
            unfold(&tree, &[], &mut all);
            prop_assert_eq!(all, stacks.into_iter().collect::<BTreeSet<_>>());
        }

        #[test]
        fn order_of_stacks_does_not_matter(stacks in stacks(), rotation in 0usize..30) {
            let mut reordered = stacks.clone();
            reordered.rotate_left(rotation % stacks.len().max(1));
            reordered.reverse();
            prop_assert_eq!(fold_stacks(&reordered), fold_stacks(&stacks));
        }
    }
}
