//! The page in a real browser, with more paused tasks than a screen has room for.

use std::sync::Arc;

use ray_relay_ray::ray::registry::BreakpointId;

use super::browser::{Browser, chromium};
use super::paused::paused;
use super::ranks::{Reaction, TURN, keeping, rank};

/// Types `text` into the filter, and says what the page counts then, at once.
fn filtered(text: &str) -> String {
    format!(
        "(() => {{ const filter = document.getElementById('filter'); filter.value = '{text}'; \
         filter.dispatchEvent(new Event('input')); return document.getElementById('count').textContent; }})()"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_finds_the_odd_rank_among_two_thousand_tasks() {
    let Some(program) = chromium() else {
        return;
    };
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    for number in 0..8 {
        let loss = if number == 3 { "nan" } else { "0.6931" };
        rank(&relay, number, Reaction::Says(loss)).await;
    }
    let (_debugger, like) = paused().await;
    for number in 8..2000 {
        let mut other = like.clone();
        other.worker_id = format!("{number:056x}").into();
        other.id = BreakpointId::derive("default", &other.worker_id);
        Arc::make_mut(&mut other.names).job_id = Some("02000000".to_owned());
        relay.registry().insert(other);
    }
    let browser = Browser::open(&program, &format!("http://{}/relay/", relay.local_addr()));
    browser.reads("count", "2000").await;
    assert_eq!(browser.evaluate("document.title").await, "(2000) ray-relay");
    // Rows outside the viewport are not in the DOM.
    let drawn = "document.querySelectorAll('#stops [data-line]').length";
    let drawn = browser.evaluate(drawn).await.as_u64().unwrap();
    assert!((10..100).contains(&drawn), "{drawn}");

    assert_eq!(browser.evaluate(&filtered("rank-3")).await, "1 of 2000");
    let shown = browser.reads("stops", "Trainer.step").await;
    assert!(!shown.contains("square"), "{shown}");
    let actor = "document.querySelector('#stops .actor').textContent";
    assert_eq!(browser.evaluate(actor).await, "rank-3");
    assert_eq!(browser.evaluate(&filtered("trainer")).await, "8 of 2000");

    // Its variables next to those of the others, with the difference marked.
    let compare = "[...document.querySelectorAll('#stops .group button')].find((one) => one.textContent === 'Compare').click()";
    browser.evaluate(compare).await;
    let shown = browser.reads("task", "8 as they stood").await;
    for expected in [
        "step (job.py:9) ranks 0-2,4-7",
        "differs from most\nstep (job.py:12) rank 3",
        "Variable\trank 3\tranks 0-2,4-7",
        "differs from most\nnan\t0.6931",
        "rank 3 is the odd one out",
        "1 alike",
    ] {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }

    // Both sides close a prompt that is quit, so it is no lost connection.
    browser
        .evaluate("document.querySelector('#stops [data-line]:not(.group)').click()")
        .await;
    browser.reads("task", "step job.py:9").await;
    let prompt = "[...document.querySelectorAll('#task article:not([hidden]) button')].find((one) => one.textContent === 'Prompt').click()";
    browser.evaluate(prompt).await;
    browser.reads("task", "(Pdb)").await;
    let typed = |line: &str| {
        format!(
            "(() => {{ const open = document.querySelector('#task article:not([hidden])'); \
             open.querySelector('.typed').value = '{line}'; open.querySelector('.typing').requestSubmit(); }})()"
        )
    };
    browser.evaluate(&typed("quit")).await;
    let shown = browser.reads("task", "[the terminal is closed]").await;
    assert!(!shown.contains("lost"), "{shown}");

    // One prompt for the remaining tasks.
    browser.reads("count", "7 of 1999").await;
    let several = prompt.replace("#task article:not([hidden])", "#stops .group");
    browser.evaluate(&several).await;
    browser.reads("task", "(Pdb ×7)").await;
    browser.evaluate(&typed("p loss")).await;
    let shown = browser.reads("task", "1,2,4-7: 0.6931").await;
    assert!(shown.contains("3:       nan  ← odd\n"), "{shown}");
    relay.abort().await;
}
