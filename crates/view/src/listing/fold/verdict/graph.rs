//! A directed graph of nodes that wait for others.
//!
//! Pure and iterative: a cycle, or a chain as long as the graph, is an ordinary case.

/// The graph. Nodes are numbers below its size.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// For each node, those that it waits for.
    waits_for: Vec<Vec<usize>>,
    /// For each node, those that wait for it.
    awaited_by: Vec<Vec<usize>>,
}

/// Nodes that all wait for each other, or a single node, which wait for no other node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sink {
    pub(super) nodes: Vec<usize>,
    pub(super) shape: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One node that waits for none.
    End,
    /// Nodes that wait for each other, or one that waits for itself.
    Cycle,
}

impl Graph {
    pub(super) fn new(size: usize) -> Self {
        Self {
            waits_for: vec![Vec::new(); size],
            awaited_by: vec![Vec::new(); size],
        }
    }

    /// Adds a node, and returns its number.
    pub(super) fn add_node(&mut self) -> usize {
        self.waits_for.push(Vec::new());
        self.awaited_by.push(Vec::new());
        self.waits_for.len() - 1
    }

    /// Adds that `from` waits for `to`. Unknown nodes are ignored.
    pub(super) fn add(&mut self, from: usize, to: usize) {
        let size = self.waits_for.len();
        if from < size && to < size {
            self.waits_for[from].push(to);
            self.awaited_by[to].push(from);
        }
    }

    /// Returns the nodes that `node` waits for.
    pub(super) fn targets(&self, node: usize) -> &[usize] {
        self.waits_for.get(node).map_or(&[], Vec::as_slice)
    }

    /// Returns the nodes that wait for `node`.
    pub(super) fn waiters(&self, node: usize) -> &[usize] {
        self.awaited_by.get(node).map_or(&[], Vec::as_slice)
    }

    /// Returns the nodes that wait for one of `nodes`, through others too, without `nodes` themselves.
    pub(super) fn all_waiters(&self, nodes: &[usize]) -> Vec<usize> {
        let mut seen = vec![false; self.waits_for.len()];
        nodes.iter().for_each(|node| seen[*node] = true);
        let (mut open, mut found) = (nodes.to_vec(), Vec::new());
        while let Some(node) = open.pop() {
            for waiter in self.waiters(node) {
                if !std::mem::replace(&mut seen[*waiter], true) {
                    open.push(*waiter);
                    found.push(*waiter);
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Returns the sets of nodes where waiting ends, in the order of their first nodes.
    pub(super) fn sinks(&self) -> Vec<Sink> {
        let components = self.components();
        let mut nodes: Vec<Vec<usize>> = Vec::new();
        let mut leaves: Vec<bool> = Vec::new();
        for (node, component) in components.iter().enumerate() {
            if *component >= nodes.len() {
                nodes.resize(component + 1, Vec::new());
                leaves.resize(component + 1, false);
            }
            nodes[*component].push(node);
            let is_other = |target: &usize| components[*target] != *component;
            leaves[*component] |= self.waits_for[node].iter().any(is_other);
        }
        let ends = nodes.into_iter().zip(leaves).filter(|(_, leaves)| !leaves);
        let sinks = ends.map(|(nodes, _)| {
            let is_end = nodes.iter().all(|node| self.waits_for[*node].is_empty());
            let shape = if is_end { Shape::End } else { Shape::Cycle };
            Sink { nodes, shape }
        });
        let mut sinks: Vec<Sink> = sinks.collect();
        sinks.sort_by_key(|sink| sink.nodes.first().copied());
        sinks
    }

    /// Returns the number of the strongly connected component of each node (Kosaraju).
    fn components(&self) -> Vec<usize> {
        let size = self.waits_for.len();
        let (mut finished, mut seen) = (Vec::with_capacity(size), vec![false; size]);
        for start in 0..size {
            if std::mem::replace(&mut seen[start], true) {
                continue;
            }
            let mut path = vec![(start, 0)];
            while let Some((node, next)) = path.last_mut() {
                match self.waits_for[*node].get(*next) {
                    Some(target) => {
                        *next += 1;
                        if !std::mem::replace(&mut seen[*target], true) {
                            path.push((*target, 0));
                        }
                    }
                    None => {
                        finished.push(*node);
                        path.pop();
                    }
                }
            }
        }
        let mut components = vec![usize::MAX; size];
        let mut count = 0;
        for start in finished.into_iter().rev() {
            if components[start] != usize::MAX {
                continue;
            }
            components[start] = count;
            let mut open = vec![start];
            while let Some(node) = open.pop() {
                for waiter in &self.awaited_by[node] {
                    if components[*waiter] == usize::MAX {
                        components[*waiter] = count;
                        open.push(*waiter);
                    }
                }
            }
            count += 1;
        }
        components
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn graph(size: usize, edges: &[(usize, usize)]) -> Graph {
        let mut graph = Graph::new(size);
        edges.iter().for_each(|(from, to)| graph.add(*from, *to));
        graph
    }

    #[test]
    fn waiting_ends_at_a_node_or_in_a_cycle() {
        let chain = graph(4, &[(0, 1), (1, 2), (9, 0), (0, 9)]);
        let ends: Vec<_> = chain.sinks().into_iter().map(|sink| sink.nodes).collect();
        assert_eq!(ends, [vec![2], vec![3]]);
        assert_eq!(chain.all_waiters(&[2]), [0, 1]);
        let cycle = graph(4, &[(0, 1), (1, 2), (2, 1), (3, 3)]).sinks();
        assert_eq!(cycle.len(), 2);
        assert_eq!(
            (&cycle[0].nodes, cycle[0].shape),
            (&vec![1, 2], Shape::Cycle)
        );
        assert_eq!((&cycle[1].nodes, cycle[1].shape), (&vec![3], Shape::Cycle));
    }

    #[test]
    fn long_chain_needs_no_stack() {
        let size = 100_000;
        let edges: Vec<_> = (1..size).map(|node| (node - 1, node)).collect();
        let chain = graph(size, &edges);
        assert_eq!(chain.sinks().len(), 1);
        assert_eq!(chain.all_waiters(&[size - 1]).len(), size - 1);
    }

    proptest! {
        #[test]
        fn each_node_reaches_a_sink_and_no_sink_is_left(edges in proptest::collection::vec((0usize..12, 0usize..12), 0..40)) {
            let graph = graph(12, &edges);
            let sinks = graph.sinks();
            let mut reached: Vec<usize> = Vec::new();
            for sink in &sinks {
                for node in &sink.nodes {
                    prop_assert!(graph.targets(*node).iter().all(|target| sink.nodes.contains(target)));
                    reached.push(*node);
                }
                reached.extend(graph.all_waiters(&sink.nodes));
            }
            reached.sort_unstable();
            reached.dedup();
            prop_assert_eq!(reached, (0..12).collect::<Vec<_>>());
        }
    }
}
