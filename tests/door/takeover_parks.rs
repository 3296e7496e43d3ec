//! Parks of a relay from which another one takes over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ray_relay::config::Config;
use ray_relay::ray::registry::{Breakpoint, BreakpointId, Kind, Registered};
use ray_relay::timestamp::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::support::*;
use super::takeover::{ends, paused, place, relay};

/// Reads until `wanted` is there, and gives everything so far.
async fn shown(stream: &mut TcpStream, wanted: &str) -> String {
    let mut seen = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&seen).into_owned();
        if text.contains(wanted) {
            return text;
        }
        let read = timeout(PATIENCE, stream.read_buf(&mut seen)).await;
        let read = read.unwrap_or_else(|_| panic!("no {wanted:?} in {text:?}"));
        assert!(read.unwrap() > 0, "closed without {wanted:?}: {text:?}");
    }
}

/// The prompt of `debugger`, which somebody who said this at the relay has entered, and whose client is lost.
async fn left_at(at: SocketAddr, debugger: &TcpListener, said: &str) -> TcpStream {
    let mut nc = dial(at).await;
    nc.write_all(said.as_bytes()).await.unwrap();
    let (mut prompt, _) = timeout(PATIENCE, debugger.accept()).await.unwrap().unwrap();
    prompt.write_all(b"-> x = 1\r\n(Pdb) ").await.unwrap();
    shown(&mut nc, "(Pdb) ").await;
    prompt
}

/// A command reaches the prompt, and what that says the client.
async fn it_goes_on(nc: &mut TcpStream, prompt: &mut TcpStream) {
    nc.write_all(b"p x\n").await.unwrap();
    let mut said = [0; 4];
    prompt.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"p x\n");
    prompt.write_all(b"1\r\n(Pdb) ").await.unwrap();
    shown(nc, "1\r\n(Pdb) ").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_predecessor_has_parked_is_listed_as_that_and_its_person_is_passed_on() {
    let (_folder, path) = place();
    let keys = Keys::new();
    let with_keys = |config: &mut Config| {
        config.auth.keys = vec![keys.public()];
        config.listen.drain_timeout = Duration::from_secs(600);
        config.park.r#for = Duration::from_secs(600);
    };
    let first = relay(&path, with_keys).await.unwrap();
    let at = first.local_addr();
    let ann = keys.token(|_| {});
    let (debugger, breakpoint) = paused().await;
    let breakpoint = Breakpoint {
        kind: Kind::Pdb,
        ..breakpoint
    };
    let id = breakpoint.id;
    first.registry().insert(breakpoint.clone());
    let mut prompt = left_at(at, &debugger, &format!("enter {id}\n{ann}\n")).await;
    let second = relay(&path, with_keys).await.unwrap();
    second.registry().insert(breakpoint);
    let ending = tokio::spawn(ends(first));

    let mut lists = second.registry().watch();
    let is_parked = lists.wait_for(|list| {
        let row = list.find(id);
        let holder = row.and_then(|row| row.holder());
        holder.is_some_and(|holder| {
            let until = holder
                .parked_until
                .map(|until| Timestamp::now().until(until));
            let whole = Duration::from_secs(500)..Duration::from_secs(601);
            holder.subject.as_deref() == Some("ann")
                && until.is_some_and(|left| whole.contains(&left))
        })
    });
    let listed = timeout(PATIENCE, is_parked)
        .await
        .expect("listed as parked");
    drop(listed.unwrap());
    // Somebody else is told there.
    let bob = keys.token(|claims| {
        claims["sub"] = "bob".into();
        claims["jti"] = "two".into();
    });
    let mut nc = dial(at).await;
    nc.write_all(format!("enter {id}\n{bob}\n").as_bytes())
        .await
        .unwrap();
    let told = rest(&mut nc).await;
    assert!(told.contains("is parked by ann"), "{told}");

    let mut nc = dial(at).await;
    nc.write_all(format!("enter {id}\n{ann}\n").as_bytes())
        .await
        .unwrap();
    let told = shown(&mut nc, "(Pdb) ").await;
    assert!(told.contains("this resumes your session with "), "{told}");
    assert_eq!(
        told.matches("token: ").count(),
        2,
        "asked here alone: {told}"
    );
    it_goes_on(&mut nc, &mut prompt).await;
    nc.write_all(b"c\n").await.unwrap();
    nc.shutdown().await.unwrap();
    let mut said = [0; 2];
    prompt.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"c\n");
    drop((prompt, debugger));
    rest(&mut nc).await;
    ending.await.unwrap();
    second.drain().await;
}

/// Of a legacy breakpoint Ray tells nobody any more once somebody has entered it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_prompt_of_the_legacy_debugger_is_the_successors_which_never_saw_it() {
    const KEY: &str = "RAY_PDB_84ccee9342eb4d10a70c5c08b7a0424e";
    let (_folder, path) = place();
    let parks = |config: &mut Config| {
        config.listen.drain_timeout = Duration::from_secs(600);
        config.park.r#for = Duration::from_secs(600);
    };
    let first = relay(&path, parks).await.unwrap();
    let at = first.local_addr();
    let mut prompts = Vec::new();
    for n in 0..2 {
        let (debugger, breakpoint) = paused().await;
        let key = format!("{KEY}{n}");
        let breakpoint = Breakpoint {
            id: BreakpointId::derive("default", &key),
            kind: Kind::Pdb,
            registered: Some(Arc::new(Registered {
                key,
                title: "ray::square()".to_owned(),
                read: std::time::Instant::now().into(),
            })),
            ..breakpoint
        };
        let id = breakpoint.id;
        first.registry().insert(breakpoint);
        let prompt = left_at(at, &debugger, &format!("enter {id}\n")).await;
        prompts.push((id, prompt));
    }
    let mut lists = first.registry().watch();
    let is_parked = |list: &ray_relay::ray::registry::Snapshot, id| {
        list.find(id).map(|row| row.state.word()) == Some("parked")
    };
    for (id, _) in &prompts {
        let parked = timeout(PATIENCE, lists.wait_for(|list| is_parked(list, *id))).await;
        drop(parked.unwrap().unwrap());
    }
    drop(lists);
    let second = relay(&path, parks).await.unwrap();
    // It stays for nobody.
    ends(first).await;
    let mut lists = second.registry().watch();
    for (id, _) in &prompts {
        let parked = timeout(PATIENCE, lists.wait_for(|list| is_parked(list, *id))).await;
        drop(parked.expect("listed as parked").unwrap());
    }
    let mut prompts = prompts.into_iter();
    let (id, mut prompt) = prompts.next().unwrap();
    let mut nc = dial(at).await;
    nc.write_all(format!("enter {id}\n").as_bytes())
        .await
        .unwrap();
    let told = shown(&mut nc, "(Pdb) ").await;
    assert!(
        told.contains("this resumes your session with square"),
        "{told}"
    );
    it_goes_on(&mut nc, &mut prompt).await;
    // The other one is let run where the relay ends.
    let (_, mut other) = prompts.next().unwrap();
    drop((nc, prompt));
    let let_run = async {
        let mut said = [0; 2];
        let read = timeout(PATIENCE, other.read_exact(&mut said)).await;
        read.expect("it is let run").unwrap();
        drop(other);
        said
    };
    let ((), said) = tokio::join!(second.drain(), let_run);
    assert_eq!(&said, b"c\n");
}
