//! The process groups of a worker and their last collectives, from PyTorch's flight recorder, as the hook reports them.

use serde::{Deserialize, Serialize};

use super::bounds::{MAX_NAME_CHARS, tidy};

/// Process groups of one worker, and recorded collectives of each.
const MAX_GROUPS: usize = 16;
const MAX_RECORDED: usize = 8;

/// Ranks of one process group that are listed.
const MAX_RANKS: usize = 512;

/// Tensors of one collective, and dimensions of each.
const MAX_TENSORS: usize = 8;
const MAX_DIMENSIONS: usize = 16;

/// A process group of PyTorch, in one of its ranks. Source: `torch._C._distributed_c10d._dump_fr_trace_json` of 2.8 and
/// newer, and `_dump_nccl_trace_json`; `torch.distributed.distributed_c10d` for `ranks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGroup {
    /// `gloo`, `nccl`; empty if it is not known.
    #[serde(default)]
    pub backend: String,
    /// Its name, the same in all of its ranks.
    pub name: String,
    /// The program's or PyTorch's description of it: `default_pg`.
    #[serde(default)]
    pub description: String,
    /// The global ranks of it; empty: not known, or more than 512.
    #[serde(default)]
    pub ranks: Vec<u32>,
    /// The number of the last collective that this rank has begun, from 1.
    pub begun: u64,
    /// The number of the last collective that has ended in this rank; 0: none.
    pub done: u64,
    /// The last collectives, the newest last; empty if only numbers are known.
    #[serde(default)]
    pub last: Vec<Collective>,
}

/// A collective of a process group, as one rank has begun it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collective {
    /// Its number in its group, from 1.
    pub number: u64,
    /// `all_reduce`, `broadcast`, ….
    pub operation: String,
    /// The dimensions of each tensor that goes in.
    #[serde(default)]
    pub sizes: Vec<Vec<u64>>,
    /// The types of these tensors: `Float`, ….
    #[serde(default)]
    pub types: Vec<String>,
}

/// Bounds the lists and texts of `groups`.
pub(super) fn bound_groups(groups: &mut Vec<ProcessGroup>) {
    groups.truncate(MAX_GROUPS);
    for group in groups {
        for text in [&mut group.backend, &mut group.name, &mut group.description] {
            tidy(text, MAX_NAME_CHARS);
        }
        group.ranks.truncate(MAX_RANKS);
        let excess = group.last.len().saturating_sub(MAX_RECORDED);
        group.last.drain(..excess);
        for collective in &mut group.last {
            tidy(&mut collective.operation, MAX_NAME_CHARS);
            collective.sizes.truncate(MAX_TENSORS);
            for sizes in &mut collective.sizes {
                sizes.truncate(MAX_DIMENSIONS);
            }
            collective.types.truncate(MAX_TENSORS);
            for of in &mut collective.types {
                tidy(of, MAX_NAME_CHARS);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::super::Look;

    #[test]
    fn process_groups_survive_a_round_trip_and_are_bounded() {
        let collective = |number: usize| json!({"number": number, "operation": "all_\u{1b}reduce", "sizes": vec![vec![4; 20]; 9], "types": vec!["Float"; 9]});
        let group = |last: usize| {
            json!({"backend": "gloo", "name": "0", "description": "default_pg", "ranks": vec![1; 600], "begun": 5, "done": 4,
                "last": (1..=last).map(collective).collect::<Vec<_>>()})
        };
        let look = |groups: usize, last: usize| {
            let look = json!({"pid": 1, "source": "hook", "threads": [], "collectives": vec![group(last); groups]});
            Look::read(look.to_string().as_bytes()).unwrap()
        };
        let small = look(1, 1);
        assert_eq!(small.collectives[0].last[0].operation, "all_reduce");
        let again = Look::read(&serde_json::to_vec(&small).unwrap());
        assert_eq!(again.unwrap(), small);
        let large = look(17, 9);
        assert_eq!(large.collectives.len(), super::MAX_GROUPS);
        let group = &large.collectives[0];
        assert_eq!(group.ranks.len(), super::MAX_RANKS);
        let numbers: Vec<u64> = group.last.iter().map(|one| one.number).collect();
        assert_eq!(numbers, [2, 3, 4, 5, 6, 7, 8, 9]);
        let last = &group.last[0];
        assert_eq!(
            (last.sizes.len(), last.sizes[0].len()),
            (super::MAX_TENSORS, super::MAX_DIMENSIONS)
        );
        assert_eq!(last.types.len(), super::MAX_TENSORS);
    }
}
