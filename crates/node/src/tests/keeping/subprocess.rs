//! For how long an agent keeps a subprocess of a worker.

use super::*;

/// The subprocess, as a relay names it.
const PROCESS: u32 = 9;

/// A scene whose worker is kept for 15 minutes, and the debugger of a subprocess of it that is kept by `keep`.
async fn kept_with_subprocess(keep: ParkTerms) -> (Scene, Dap<TcpStream>) {
    let mut scene = Scene::new(None).await;
    let worker = super::keep("ada", minutes(15));
    scene.client.stream.say(written(&worker)).await.unwrap();
    let mut of_process = open(WORKER, scene.port);
    of_process.process = Some(PROCESS);
    of_process.holder = None;
    of_process.stream = Hex([9; 8]);
    send(&mut scene.links[0], &FromRelay::Open(of_process.clone())).await;
    let (mut socket, _) = scene.one.accept().await;
    let greeting = next(&mut socket).await.into_text().unwrap();
    assert_eq!(
        read::<StreamGreeting>(&greeting).unwrap(),
        StreamGreeting::Dialled
    );
    let mut stream = Stream::new(socket);
    let (debugger, _) = scene.listener.accept().await.unwrap();
    let mut debugger = Dap::new(debugger);
    stream.say(written(&keep)).await.unwrap();
    let mut client = Dap::new(stream);
    for (seq, command) in ["attach", "configurationDone"].into_iter().enumerate() {
        client.request(seq as u64, command).await;
        debugger.expect_request(command).await;
        client.receive().await.unwrap();
    }
    assert!(scene.held().await.parked.is_none());
    scene.lose().await;
    assert!(scene.held().await.parked.is_some());
    drop(client);
    of_process.resume = Some("ada".into());
    while scene.agent.held.kept_subprocesses(&of_process).is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (scene, debugger)
}

/// Lets `period` pass.
async fn pass(period: Duration) {
    tokio::time::pause();
    tokio::time::advance(period).await;
    tokio::time::resume();
}

const SHORT: Duration = Duration::from_secs(8);

#[tokio::test]
async fn subprocess_is_kept_as_long_as_its_worker() {
    let (mut scene, mut subprocess) = kept_with_subprocess(keep("ada", SHORT)).await;
    pass(SHORT).await;
    subprocess.expect_nothing().await;
    scene.debugger.expect_nothing().await;
    let open = FromRelay::Open(open(WORKER, scene.port));
    send(scene.second(), &open).await;
    let FromAgent::Refused { holder, .. } = next_message(scene.second()).await else {
        panic!("not refused");
    };
    let let_run = LetRun::of(&holder.unwrap());
    send(scene.second(), &FromRelay::LetRun(let_run)).await;
    scene.debugger.expect_detach().await;
    drop(scene.debugger.stream);
    subprocess.expect_detach().await;
    drop(subprocess);
    scene.agent.end().await;
}

#[tokio::test]
async fn subprocess_is_detached_at_its_limit_once_its_worker_is_resumed() {
    let (mut scene, mut subprocess) = kept_with_subprocess(keep("ada", SHORT)).await;
    scene.resume().await;
    assert!(scene.held().await.parked.is_none());
    subprocess.expect_nothing().await;
    pass(SHORT).await;
    subprocess.expect_detach().await;
    drop(subprocess);
    scene.debugger.expect_nothing().await;
    drop(scene.debugger.stream);
    scene.agent.end().await;
}
