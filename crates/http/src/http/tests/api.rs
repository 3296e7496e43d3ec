//! The relay's own API.

use super::*;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use serde_json::Value;

use ray_relay_ray::ray::registry::Holder;

#[tokio::test]
async fn breakpoints_are_listed() {
    let relay = Relay::start(&[], |_| {}).await;
    relay.registry.insert(breakpoint("aa11"));
    let response = relay.get("/relay/v1/breakpoints").await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
    assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
    let text = text(response).await;
    assert!(
        !text.contains("38645"),
        "the debugger's port stays inside: {text}"
    );
    let list: Value = serde_json::from_str(&text).unwrap();
    let row = &list["breakpoints"][0];
    assert_eq!(row["id"], breakpoint("aa11").id.to_string());
    assert_eq!(row["kind"], "debugpy");
    assert_eq!(row["state"], "paused");
    assert_eq!(row["holder"], Value::Null);
    assert_eq!(row["node_ip"], "10.88.0.10");
    assert_eq!(row["name"], "square");
    assert_eq!(row["title"], "square · pid 495 @ 10.88.0.10");
    assert_eq!(row["reason"], "breakpoint");
    assert!(row["waiting_seconds"].is_number() && row["first_seen"].is_number());
    assert!(row.get("why").is_none());
    assert_eq!(list["snapshot_age_seconds"], Value::Null);
    assert_eq!(list["clusters"][0]["name"], "default");
}

fn holder() -> Holder {
    Holder::here(1, None, "an editor", Some(([127, 0, 0, 1], 1).into()))
}

#[tokio::test]
async fn unreachable_breakpoint_is_listed_and_counted() {
    let relay = Relay::start(&[], |_| {}).await;
    relay.registry.insert(breakpoint("aa11"));
    let id = breakpoint("aa11").id;
    let claim = relay.registry.claim(id, holder()).unwrap();
    claim.dialled(false);
    drop(claim);
    let list = json(relay.get("/relay/v1/breakpoints").await).await;
    let row = &list["breakpoints"][0];
    assert_eq!(row["state"], "unreachable");
    assert!(row["unreachable_since"].as_f64() >= row["first_seen"].as_f64());
    let reason = row["why"].as_str().unwrap();
    assert!(reason.contains("nothing listens on its port"), "{reason}");
    let metrics = text(relay.get("/relay/metrics").await).await;
    let expected = r#"ray_relay_breakpoints{cluster="default",state="unreachable"} 1"#;
    assert!(metrics.contains(expected), "{metrics}");
}

#[tokio::test]
async fn ended_breakpoints_are_listed_on_request() {
    let relay = Relay::start(&[], |_| {}).await;
    relay.registry.insert(breakpoint("aa11"));
    relay
        .registry
        .end(breakpoint("aa11").id, Some("the worker ran out of memory"));
    let list = json(relay.get("/relay/v1/breakpoints").await).await;
    assert_eq!(list["breakpoints"].as_array().unwrap().len(), 0);
    let list = json(relay.get("/relay/v1/breakpoints?ended=1").await).await;
    assert_eq!(list["breakpoints"][0]["state"], "died");
    assert_eq!(
        list["breakpoints"][0]["why"],
        "the worker ran out of memory"
    );
}

#[tokio::test]
async fn list_is_paginated_and_filtered() {
    let relay = Relay::start(&[], |_| {}).await;
    let mut expected = Vec::new();
    for i in 0..25u64 {
        let mut row = breakpoint(&format!("aa{i:02}"));
        row.first_seen = ray_relay_base::timestamp::testing::at(100 + i / 2);
        row.names_mut().name = Some(format!("{}-{i}", if i % 5 == 0 { "load" } else { "step" }));
        relay.registry.insert(row);
    }
    for b in &relay.registry.snapshot().live {
        expected.push(b.id.to_string());
    }
    let page =
        async |query: &str| json(relay.get(&format!("/relay/v1/breakpoints?{query}")).await).await;
    let ids = |list: &Value| -> Vec<String> {
        let rows = list["breakpoints"].as_array().unwrap().iter();
        rows.map(|row| row["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let (mut listed, mut query, mut pages) = (Vec::new(), "limit=7".to_owned(), 0);
    loop {
        let list = page(&query).await;
        pages += 1;
        assert_eq!(list["total"], 25);
        listed.extend(ids(&list));
        let Some(next) = list["next"].as_str() else {
            break;
        };
        // The last row of a page may have moved before the next request.
        let last = listed.last().unwrap().parse().unwrap();
        let mut moved = ray_relay_ray::ray::registry::Breakpoint::clone(
            relay.registry.snapshot().find(last).unwrap(),
        );
        relay.registry.end(last, None);
        moved.first_seen = ray_relay_base::timestamp::testing::at(99);
        relay.registry.insert(moved);
        query = format!("limit=7&after={next}");
    }
    assert_eq!((pages, &listed), (4, &expected), "each row once, in order");

    let by_name = page("name=load*&limit=3").await;
    assert_eq!((&by_name["total"], ids(&by_name).len()), (&5.into(), 3));
    assert!(by_name["next"].is_string());
    assert_eq!(ids(&page("name=step-%31").await).len(), 1);
    let all = page("").await;
    assert_eq!((&all["total"], &all["next"]), (&25.into(), &Value::Null));
    let with_ended = page("ended=1&limit=25").await;
    assert!(ids(&with_ended).len() > 25, "{with_ended}");

    // The filters of `list --filter`: a substring, a pattern, or one for a column. All must match.
    for (query, fitting) in [
        ("filter=load", 5),
        ("filter=name%3Dload*", 5),
        ("filter=NAME%3D*-1", 1),
        ("filter=step&filter=state%3Dpaused", 20),
        ("filter=state%3Dattached", 0),
        ("filter=holder%3D-&limit=3", 25),
    ] {
        let list = page(query).await;
        assert_eq!(
            (&list["total"], &list["hidden"]),
            (&fitting.into(), &(25 - fitting).into()),
            "{query}"
        );
    }
    assert!(page("").await["hidden"].is_null());
}

#[test]
fn filter_matches_a_breakpoint_as_its_row() {
    use ray_relay_base::timestamp::Timestamp;
    use ray_relay_ray::ray::registry::{Breakpoint, Location, Reason, State};
    use ray_relay_view::listing::json::JsonRow;
    use ray_relay_view::listing::row::Row;
    use ray_relay_view::listing::select::Filter;

    let plain = breakpoint("aa01");
    let changed_by = |change: &dyn Fn(&mut Breakpoint)| {
        let mut changed = plain.clone();
        change(&mut changed);
        changed
    };
    let breakpoints = [
        plain.clone(),
        changed_by(&|b| b.names_mut().name = Some("train".to_owned())),
        changed_by(&|b| b.names_mut().actor_name = Some("ada".to_owned())),
        changed_by(&|b| b.names_mut().rank = Some(3)),
        changed_by(&|b| b.names_mut().job_id = Some("01000000".to_owned())),
        changed_by(&|b| b.reason = Reason::PostMortem),
        changed_by(&|b| b.pid = 0),
        changed_by(&|b| b.state = State::Attached(holder())),
        changed_by(&|b| {
            let (file, function) = ("train.py".to_owned(), "f".to_owned());
            b.location = Some(Arc::new(Location {
                file,
                line: 26,
                function,
            }));
        }),
    ];
    let now = Timestamp::now();
    for text in [
        "train",
        "-",
        "name=train*",
        "name=worker*",
        "name=*(post-mortem)",
        "name=*rank 3",
        "name=*[ada]",
        "job=-",
        "job=01*",
        "pid=-",
        "pid=1",
        "state=paused",
        "state=attached",
        "holder=-",
        "holder=*from*",
        "where=train.py:26",
        "where=-",
        "kind=debugpy",
        "node=10",
        "id=*",
        "task=-",
        "worker=aa01",
        "gpus=-",
        "cluster=default",
    ] {
        let filter: Filter = text.parse().unwrap();
        for breakpoint in &breakpoints {
            let row = Row::read(&serde_json::json!(JsonRow::new(breakpoint, now)));
            assert_eq!(
                filter.fits_breakpoint(breakpoint, now),
                filter.fits(&row),
                "{text}: {row:?}"
            );
        }
    }
}

/// The whole list begins with free breakpoints. Pages are ordered by `first_seen`.
#[tokio::test]
async fn pages_miss_nothing_during_attaches() {
    let relay = Relay::start(&[], |_| {}).await;
    let mut expected = Vec::new();
    for i in 0..12u64 {
        let mut row = breakpoint(&format!("aa{i:02}"));
        row.first_seen = ray_relay_base::timestamp::testing::at(100 + i);
        expected.push(row.id);
        relay.registry.insert(row);
    }
    let mut claims = vec![relay.registry.claim(expected[11], holder()).unwrap()];
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/relay/v1/breakpoints?limit=3{after}");
        let list = json(relay.get(&path).await).await;
        for row in list["breakpoints"].as_array().unwrap() {
            listed.push(row["id"].as_str().unwrap().to_owned());
        }
        let Some(next) = list["next"].as_str() else {
            break;
        };
        after = format!("&after={next}");
        // Attaches to the last listed breakpoint and to the next one.
        for id in [expected[listed.len() - 1], expected[listed.len()]] {
            claims.push(relay.registry.claim(id, holder()).unwrap());
        }
    }
    let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn invalid_page_is_refused_with_a_message() {
    let relay = Relay::start(&[], |_| {}).await;
    for (query, sentence) in [
        (
            "endd=1",
            "the parameters of /relay/v1/breakpoints are limit",
        ),
        ("limit=0", "from 1 to 10000"),
        ("limit=10001", "from 1 to 10000"),
        ("limit=many", "from 1 to 10000"),
        ("after=x", "`next` of the page before"),
        ("after=7k2m9qxd.x", "`next` of the page before"),
        ("after=7k2m9qxd", "begin again without `after`"),
        ("name=", "name is a pattern"),
        ("filter=", "a filter is a part"),
        ("filter=colour%3Dred", "there is no column colour"),
        (
            "filter=a&filter=a&filter=a&filter=a&filter=a",
            "4 filters at most",
        ),
        ("name=%zz", "the query is not readable"),
        ("ended=maybe", "ended is 1 or 0"),
    ] {
        let response = relay.get(&format!("/relay/v1/breakpoints?{query}")).await;
        assert_eq!(response.status(), 400, "{query}");
        let error = text(response).await;
        assert!(error.contains(sentence), "{query}: {error}");
    }
}

#[tokio::test]
async fn health_and_metrics_are_served() {
    let relay = Relay::start(&[], |_| {}).await;
    assert_eq!(relay.get("/relay/healthz").await.status(), 200);
    assert_eq!(relay.get("/relay/readyz").await.status(), 200);
    let response = relay.get("/relay/readyz?cluster=default").await;
    assert_eq!(response.status(), 503);
    let reason = json(response).await["reasons"][0]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        reason.starts_with("cluster default has not answered yet"),
        "{reason}"
    );
    let metrics = text(relay.get("/relay/metrics").await).await;
    assert!(
        metrics.contains(r#"ray_relay_http_requests_total{class="5xx",route="health"} 1"#),
        "{metrics}"
    );
    assert_eq!(
        json(relay.get("/relay/v1/sessions").await).await["sessions"],
        Value::Array(vec![])
    );
}

#[tokio::test]
async fn unknown_path_or_method_is_refused() {
    let relay = Relay::start(&[], |_| {}).await;
    for path in ["/relay/v1", "/relay/pages", "/relay/v1/breakpoint"] {
        let response = relay.get(path).await;
        assert_eq!(response.status(), 404);
        let error = json(response).await["error"].to_string();
        assert!(error.contains("/relay/v1/breakpoints"), "{error}");
    }
    let request = relay
        .request("POST", "/relay/v1/breakpoints")
        .body(answer::empty())
        .unwrap();
    let response = relay.client().await.send(request).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()[ALLOW]),
        (405, &"GET, HEAD".parse().unwrap())
    );
}

#[tokio::test]
async fn head_has_the_length_and_no_body() {
    let relay = Relay::start(&[], |_| {}).await;
    let length = text(relay.get("/relay/healthz").await).await.len();
    let request = relay
        .request("HEAD", "/relay/healthz")
        .body(answer::empty())
        .unwrap();
    let response = relay.client().await.send(request).await;
    assert_eq!(response.headers()[CONTENT_LENGTH], length.to_string());
    assert_eq!(text(response).await, "");
}

#[tokio::test]
async fn unknown_host_is_refused_naming_the_setting() {
    let relay = Relay::start(&[], |_| {}).await;
    let ask = async |host: &str| {
        let request = Request::get("/relay/healthz")
            .header(HOST, host)
            .body(answer::empty())
            .unwrap();
        relay.client().await.send(request).await
    };
    assert_eq!(ask("relay.example.com:5678").await.status(), 200);
    let response = ask("evil.example.com").await;
    assert_eq!(response.status(), 421);
    assert!(text(response).await.contains("http.allowed_hosts"));
}

/// Returns the name and data of the next event.
async fn event(body: &mut Incoming, buffer: &mut String) -> (String, Value) {
    loop {
        if let Some((event, rest)) = buffer.split_once("\n\n") {
            let field = |name: &str| {
                let line = event.lines().find(|line| line.starts_with(name));
                line.map(|line| line[name.len()..].to_owned())
                    .unwrap_or_default()
            };
            let name_and_data = (
                field("event: "),
                serde_json::from_str(&field("data: ")).unwrap(),
            );
            *buffer = rest.to_owned();
            return name_and_data;
        }
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        buffer.push_str(std::str::from_utf8(&frame).unwrap());
    }
}

#[tokio::test]
async fn events_are_streamed_until_shutdown() {
    let mut relay = Relay::start(&[], |_| {}).await;
    relay.registry.insert(breakpoint("aa11"));
    let response = relay.get("/relay/v1/events").await;
    assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
    let (mut body, mut buffer) = (response.into_body(), String::new());
    let (name, list) = event(&mut body, &mut buffer).await;
    assert_eq!(
        (name.as_str(), &list["breakpoints"][0]["worker_id"]),
        ("snapshot", &"aa11".into())
    );
    relay.registry.insert(breakpoint("bb22"));
    let (name, row) = event(&mut body, &mut buffer).await;
    assert_eq!(
        (name.as_str(), &row["worker_id"]),
        ("appeared", &"bb22".into())
    );
    relay.registry.end(breakpoint("aa11").id, Some("killed"));
    let (name, row) = event(&mut body, &mut buffer).await;
    assert_eq!((name.as_str(), &row["why"]), ("died", &"killed".into()));
    relay.registry.end(breakpoint("bb22").id, None);
    assert_eq!(event(&mut body, &mut buffer).await.0, "released");
    relay.shutdown.cancel();
    assert!(body.frame().await.is_none());
    relay.until_disconnected().await;
}

#[tokio::test]
async fn event_streams_are_bounded_and_released() {
    let mut relay = Relay::start(&[], |_| {}).await;
    let first = relay.get("/relay/v1/events").await;
    let second = relay.get("/relay/v1/events").await;
    let response = relay.get("/relay/v1/events").await;
    assert_eq!(response.status(), 503);
    assert!(text(response).await.contains("http.max_event_streams"));
    drop((first, second));
    relay.connections.wait_for(|open| *open <= 1).await.unwrap();
    assert_eq!(relay.get("/relay/v1/events").await.status(), 200);
}

#[tokio::test]
async fn trouble_is_reported_to_administrators_only() {
    let users = [
        User::new("ann", "\"admin\", \"list\"", ""),
        User::new("bob", "\"list\", \"debug\"", ""),
        User::new("carl", "\"admin\"", ""),
    ];
    let relay = Relay::with_users(&[], &users.iter().collect::<Vec<_>>()).await;
    relay.registry.insert(breakpoint("aa11"));
    let path = "/relay/v1/doctor";
    assert_eq!(relay.get(path).await.status(), 401);
    assert_eq!(relay.get_as(&token_of("bob"), path).await.status(), 403);
    let report = text(relay.get_as(&token_of("ann"), path).await).await;
    assert!(report.contains("the relay serves"), "{report}");
    assert!(report.contains("1 task waits for a debugger"), "{report}");
    // Findings count only breakpoints that the user may list.
    let report = text(relay.get_as(&token_of("carl"), path).await).await;
    assert!(
        report.contains("the relay serves") && !report.contains("waits for"),
        "{report}"
    );
}
