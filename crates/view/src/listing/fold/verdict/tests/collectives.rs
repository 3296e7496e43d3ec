//! Collectives that PyTorch's flight recorder has numbered.

use super::*;

/// Records the process group `name` of the ranks 0 to 7 in `process`: the collective `begun` is its last, an all_reduce
/// of one tensor of these `sizes`.
fn recorded(process: Process, name: &str, begun: u64, done: u64, sizes: &[u64]) -> Process {
    let ranks: Vec<u32> = (0..8).collect();
    group(process, name, &ranks, [begun, done], ("all_reduce", sizes))
}

fn group(
    process: Process,
    name: &str,
    ranks: &[u32],
    [begun, done]: [u64; 2],
    last: (&str, &[u64]),
) -> Process {
    let earlier = (1..begun).map(|number| json!({"number": number, "operation": "all_reduce", "sizes": [[4]], "types": ["Float"]}));
    let last = json!({"number": begun, "operation": last.0, "sizes": [last.1], "types": ["Float"]});
    process.look(
        "collectives",
        json!([{"backend": "gloo", "name": name, "description": "default_pg", "ranks": ranks, "begun": begun, "done": done,
            "last": earlier.chain([last]).collect::<Vec<_>>()}]),
    )
}

/// Ranks 0 to 7 in one line, with `odd` in place of rank 3. The others wait in the collective `begun`.
fn waiting(odd: Process, begun: u64) -> Vec<Process> {
    let rank = |at| {
        recorded(
            rank(at, ALL_REDUCE).still(60.0),
            "0",
            begun,
            begun - 1,
            &[4],
        )
    };
    let mut all: Vec<Process> = (0..8).map(rank).collect();
    all[3] = odd;
    all
}

#[test]
fn rank_in_the_line_of_the_others_and_one_collective_behind_is_blamed() {
    // It has left one out, and waits at a barrier in which PyTorch is not recorded.
    let odd = recorded(rank(3, BARRIER).still(60.0), "0", 4, 4, &[4]);
    let text = assert_verdict(
        &answer(waiting(odd, 5)),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3"],
    );
    for words in [
        "Rank 3's last collective is all_reduce #4 of default_pg, and others wait in #5.\n",
        "Ranks 0-2,4-7 wait for it in torch.distributed.all_reduce, from step (loop.py:50), for 1m 00s: all_reduce #5 of default_pg.\n",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let odd = recorded(rank(3, BARRIER).still(60.0), "0", 4, 4, &[4]);
    let json = json_of(&verdict_on(&answer(waiting(odd, 5))));
    assert_eq!(
        json["waiting"][0]["collective"],
        "all_reduce #5 of default_pg"
    );
    // Its own collective, in the same line, is one that all others have behind them.
    let odd = recorded(rank(3, ALL_REDUCE).still(60.0), "0", 4, 3, &[5]);
    let text = assert_verdict(
        &answer(waiting(odd, 5)),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3"],
    );
    let words =
        "Rank 3's all_reduce #4 of default_pg has Float [5], and that of the others Float [4].\n";
    assert!(text.contains(words), "{text}");
}

#[test]
fn rank_in_another_operation_of_the_same_number_is_blamed() {
    let odd = rank(3, BARRIER).still(60.0);
    let odd = group(
        odd,
        "0",
        &[0, 1, 2, 3, 4, 5, 6, 7],
        [5, 4],
        ("broadcast", &[4]),
    );
    let text = assert_verdict(
        &answer(waiting(odd, 5)),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3"],
    );
    let words = "Rank 3's collective #5 of default_pg is broadcast, and that of the others is all_reduce.\n";
    assert!(text.contains(words), "{text}");
}

#[test]
fn nobody_is_blamed_for_a_collective_that_all_have_begun() {
    let text = |all| assert_verdict(&answer(all), Kind::Unknown, Confidence::Possible, &[]);
    let same = recorded(rank(3, ALL_REDUCE).still(60.0), "0", 5, 4, &[4]);
    assert!(text(waiting(same, 5)).contains(": all_reduce #5 of default_pg.\n"));
    // Tensors that one rank scatters, or that differ in all_to_all, need not be alike.
    let all = (0..8).map(|at| {
        let sizes: &[u64] = if at == 3 { &[9] } else { &[4] };
        let one = rank(at, ALL_REDUCE).still(60.0);
        group(
            one,
            "0",
            &[0, 1, 2, 3, 4, 5, 6, 7],
            [5, 4],
            ("all_to_all", sizes),
        )
    });
    text(all.collect());
    // Its recorder has forgotten that collective.
    let begun = |at| recorded(rank(at, ALL_REDUCE).still(60.0), "0", 5, 4, &[4]);
    let mut all: Vec<Process> = (0..8).map(begun).collect();
    let forgotten = json!([{"backend": "gloo", "name": "0", "ranks": [0, 1, 2, 3, 4, 5, 6, 7], "begun": 900, "done": 3}]);
    all[3] = rank(3, ALL_REDUCE)
        .still(60.0)
        .look("collectives", forgotten);
    text(all);
}

#[test]
fn groups_of_one_name_are_not_compared() {
    // Two worlds of four ranks in one job, both with a group 0.
    let world = |at: u32, begun| {
        let one = process("Actor", at, ALL_REDUCE).still(1.0);
        group(
            one,
            "0",
            &[0, 1, 2, 3],
            [begun, begun - 1],
            ("all_reduce", &[4]),
        )
    };
    let all: Vec<Process> = (0..8).map(|at| world(at, 5 + u64::from(at / 4))).collect();
    assert_verdict(&answer(all), Kind::Healthy, Confidence::Likely, &[]);
}

#[test]
fn only_ranks_of_the_same_process_group_are_missing() {
    let of_pair = |at: u32| {
        let pair = at / 2 * 2;
        let one = rank(at, ALL_REDUCE).still(60.0);
        let name = format!("pair {pair}");
        group(one, &name, &[pair, pair + 1], [3, 2], ("all_reduce", &[4]))
    };
    let mut all: Vec<Process> = (0..8).map(of_pair).collect();
    all[5] = group(
        rank(5, LOAD).call("time.sleep").still(60.0),
        "pair 4",
        &[4, 5],
        [2, 2],
        ("all_reduce", &[4]),
    );
    let text = assert_verdict(&answer(all), Kind::Hangs, Confidence::Likely, &["rank 5"]);
    assert!(text.contains("Rank 4 waits for it in "), "{text}");
}

#[test]
fn silent_rank_of_the_group_is_missing() {
    let silent = rank(3, LOAD).silent("it does not answer (GIL)");
    assert_verdict(
        &answer(waiting(silent, 5)),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3"],
    );
}

#[test]
fn one_call_too_many_is_blamed_once_the_others_have_returned() {
    let odd = recorded(rank(3, ALL_REDUCE).still(60.0), "0", 21, 20, &[4]);
    let idle: Vec<Value> = [0, 1, 2, 4, 5, 6, 7]
        .map(|at| rank(at, STEP).idle("Trainer.run", "FINISHED"))
        .to_vec();
    let text = assert_verdict(
        &with_idle(vec![odd], &idle),
        Kind::Hangs,
        Confidence::Possible,
        &["rank 3"],
    );
    assert!(
        text.starts_with(
            "Rank 3 of Trainer waits for the others of the group, which have returned (possible).\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "Rank 3's collective may be one too many: the others of the group have returned.\n"
        ),
        "{text}"
    );
}

#[test]
fn looks_at_different_moments_blame_nobody() {
    let ranks = (0..8).map(|at| {
        let begun = 100 + u64::from(at % 3);
        recorded(rank(at, ALL_REDUCE).still(0.0), "0", begun, begun - 1, &[4])
    });
    assert_verdict(
        &answer(ranks.collect()),
        Kind::Healthy,
        Confidence::Likely,
        &[],
    );
}

#[test]
fn loader_that_looks_at_its_children_again_and_again_hangs() {
    const LOADER: job::Stack = &[
        (
            "wait",
            "/usr/lib/python3.11/multiprocessing/connection.py",
            930,
        ),
        ("_try_get_data", "torch/utils/data/dataloader.py", 1285),
        ("__next__", "torch/utils/data/dataloader.py", 734),
        ("load", "data.py", 12),
    ];
    let loads = |here: f64| {
        let mut loads = rank(3, LOADER)
            .still(2.0)
            .child("pt_data_worker", "waiting");
        loads.history("here_ms", (here * 1000.0) as u64);
        recorded(loads, "0", 4, 4, &[4])
    };
    let text = assert_verdict(
        &answer(waiting(loads(58.0), 5)),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3"],
    );
    let words = "waits in the next batch of a DataLoader, from load (data.py:12), while its child pt_data_worker (pid 9) waits; it has not moved for 58s.\n";
    assert!(text.contains(words), "{text}");
    // It has had another batch since the others wait.
    let verdict = verdict_on(&answer(waiting(loads(1.0), 5)));
    assert_eq!(verdict.kind, Kind::Slow, "{}", verdict.text());
}

#[test]
fn rank_whose_recorder_does_not_answer_is_not_missing_and_compared_with_none() {
    let odd = recorded(rank(3, ALL_REDUCE).still(60.0), "0", 4, 3, &[5]);
    let mut all = waiting(odd, 5);
    all[6] = rank(6, ALL_REDUCE)
        .look("source", "py-spy")
        .locals(&[("model", "<Model at 0x7f>")]);
    all[7] = rank(7, ALL_REDUCE).locals(&[("model", "Model(layers=2)")]);
    assert_verdict(&answer(all), Kind::Hangs, Confidence::Likely, &["rank 3"]);
    let spelled = |at: u32| {
        let one = rank(at, STEP).still(0.0);
        match at {
            6 => one
                .look("source", "py-spy")
                .locals(&[("model", "<Model at 0x7f>")]),
            _ => one.locals(&[("model", "Model(layers=2)")]),
        }
    };
    assert_verdict(
        &answer((0..8).map(spelled).collect()),
        Kind::Healthy,
        Confidence::Likely,
        &[],
    );
}

#[test]
fn worker_of_ray_train_whose_function_has_returned_holds_the_others_up() {
    const LOOP: job::Stack = &[
        (
            "Worker.main_loop",
            "/site-packages/ray/_private/worker.py",
            1069,
        ),
        (
            "<module>",
            "/site-packages/ray/_private/workers/default_worker.py",
            323,
        ),
    ];
    // It is polled now and then.
    let odd = recorded(rank(3, LOOP).call("poll").still(0.0), "0", 39, 39, &[4]);
    let text = assert_verdict(
        &answer(waiting(odd, 40)),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3"],
    );
    for words in [
        "Rank 3 (pid 103 @ 10.0.0.7) runs nothing of the program: its function has returned or failed, or has not begun.\n",
        "Rank 3's last collective is all_reduce #39 of default_pg, and others wait in #40.\n",
    ] {
        assert!(text.contains(words), "{text}");
    }
}
