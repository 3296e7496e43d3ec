//! The same with PyTorch: collectives of gloo in plain actors, in groups of them, and in Ray Train.
//!
//! Once: `target/ray-venvs/2.60.0/bin/python -m pip install 'ray[train]==2.60.0' torch` (2.8 or newer, 7 GB). Then
//! `cargo test --test it -- --ignored why::torch --nocapture`.

use super::*;

/// In plain actors, whose flight recorders are on.
const IN_ACTORS: [Planted; 8] = [
    planted(
        "skipped",
        "hangs",
        &["rank 2"],
        &[
            "is idle: Trainer.train returned",
            "all_reduce #40 of default_pg",
        ],
    ),
    planted(
        "extra",
        "hangs",
        &["rank 2"],
        &["collective may be one too many"],
    ),
    planted(
        "shape",
        "hangs",
        &["rank 2"],
        &[
            "Rank 2 of Trainer's all_reduce #4 of default_pg has Float [3], and that of the others Float [4]",
        ],
    ),
    planted(
        "operation",
        "hangs",
        &["rank 2"],
        &["collective #4 of default_pg is all_gather, and that of the others is all_reduce"],
    ),
    planted("sleep", "hangs", &["rank 2"], &["sleeps in goes_wrong ("]),
    planted(
        "swallow",
        "hangs",
        &["rank 2"],
        &["is idle: Trainer.train returned"],
    ),
    planted(
        "loader-hung",
        "hangs",
        &["rank 2"],
        &["the next batch of a DataLoader", "its child "],
    ),
    planted(
        "loader-dead",
        "hangs",
        &["rank 2"],
        &["is idle: Trainer.train failed"],
    ),
];

/// In two pairs, each with a process group of its own: rank 3 waits alone.
const IN_GROUPS: [Planted; 2] = [
    planted(
        "skipped",
        "hangs",
        &["rank 2"],
        &["Rank 3 of Trainer waits for it in torch.distributed.all_reduce"],
    ),
    planted("sleep", "hangs", &["rank 2"], &["all_reduce #4 of right"]),
];

/// In the workers of Ray Train.
const IN_TRAIN: [Planted; 3] = [
    planted("sleep", "hangs", &["rank 2"], &["sleeps in goes_wrong ("]),
    planted(
        "shape",
        "hangs",
        &["rank 2"],
        &["all_reduce #4 of default_pg has Float [3]"],
    ),
    planted(
        "skipped",
        "hangs",
        &["rank 2"],
        &["all_reduce #40 of default_pg"],
    ),
];

#[tokio::test]
#[ignore = "needs PyTorch in the environment of Ray: by hand"]
async fn culprit_of_each_planted_fault_is_named_with_pytorch() {
    let Some(cluster) = Cluster::up(NEWEST, 0, &[]) else {
        return;
    };
    let dir = hook_dir();
    let hook = dir.path().to_str().unwrap();
    let scene = Scene::new(&cluster);
    let _agent = Agent::on(&scene, "head", &["--allow-plaintext"]);
    linked(&scene, 1);
    for (layout, faults) in [
        ("actors", &IN_ACTORS[..]),
        ("groups", &IN_GROUPS),
        ("train", &IN_TRAIN),
    ] {
        let program = Program {
            file: "why/torch_faults.py",
            env: &[("LAYOUT", layout)],
        };
        for some in faults.chunks(2) {
            for job in &started(&cluster, &program, hook, some) {
                verify(&scene, job);
            }
        }
    }
}
