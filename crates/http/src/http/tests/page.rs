//! The page at `/relay/`: its public files and its content security policy.

use hyper::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

use super::*;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self' *.localhost:*";

/// Returns the names and contents of the files in the page's folder.
fn files() -> Vec<(String, String)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/page");
    let entries = std::fs::read_dir(folder).unwrap();
    let read_file = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, std::fs::read_to_string(entry.path()).unwrap())
    };
    entries.map(read_file).collect()
}

fn path(name: &str) -> String {
    match name {
        "index.html" => "/relay/".to_owned(),
        _ => format!("/relay/page/{name}"),
    }
}

#[tokio::test]
async fn page_files_are_public_under_a_strict_policy() {
    let ann = User::new("ann", "\"list\"", "");
    let relay = Relay::with_users(&[], &[&ann]).await;
    for (name, content) in files() {
        let response = relay.get(&path(&name)).await;
        assert_eq!(response.status(), 200, "{name}");
        let headers = response.headers().clone();
        assert_eq!(headers[CONTENT_SECURITY_POLICY], POLICY, "{name}");
        assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff", "{name}");
        assert_eq!(headers[REFERRER_POLICY], "strict-origin", "{name}");
        assert_eq!(headers[CACHE_CONTROL], "no-cache", "{name}");
        let kind = match name.rsplit_once('.').unwrap().1 {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            // The template has comments and placeholders, so it is not valid JSON.
            "json" => "text/plain; charset=utf-8",
            other => panic!("a file of an unknown kind: {other}"),
        };
        assert_eq!(headers[CONTENT_TYPE], kind, "{name}");
        assert_eq!(text(response).await, content, "{name}");

        let request = relay
            .request("GET", &path(&name))
            .header(IF_NONE_MATCH, headers[ETAG].clone());
        let request = request.body(answer::empty()).unwrap();
        let response = relay.client().await.send(request).await;
        assert_eq!(response.status(), 304, "{name}");
        assert_eq!(response.headers()[ETAG], headers[ETAG]);
        assert_eq!(response.headers()[CONTENT_SECURITY_POLICY], POLICY);

        let head = relay.request("HEAD", &path(&name));
        let head = head.body(answer::empty()).unwrap();
        let response = relay.client().await.send(head).await;
        assert_eq!(response.status(), 200, "{name}");
        let length = content.len().to_string();
        assert_eq!(response.headers()[CONTENT_LENGTH], *length, "{name}");
        assert_eq!(text(response).await, "");
    }
    let response = relay.get("/relay").await;
    assert_eq!(response.status(), 308);
    assert_eq!(response.headers()[LOCATION], "relay/");
}

#[tokio::test]
async fn documentation_is_public_and_runs_no_script() {
    let ann = User::new("ann", "\"list\"", "");
    let relay = Relay::with_users(&[], &[&ann]).await;
    let contents = text(relay.get("/relay/docs/").await).await;
    for page in ray_relay_view::manual::PAGES {
        assert!(contents.contains(&format!("<a href=\"{0}\">{0}</a>", page.topic)));
        let response = relay.get(&format!("/relay/docs/{}", page.topic)).await;
        assert_eq!(response.status(), 200, "{}", page.topic);
        let headers = response.headers().clone();
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; style-src 'self';"),
            "{policy}"
        );
        assert_eq!(headers[CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(headers[REFERRER_POLICY], "strict-origin");
        let html = text(response).await;
        assert!(
            !html.contains("<script") && !html.contains(" style="),
            "{}",
            page.topic
        );
        let response = relay.get(&format!("/relay/docs/{}.md", page.topic)).await;
        assert_eq!(text(response).await, page.text);
    }
    let response = relay.get("/relay/docs/architecture.svg").await;
    assert_eq!(response.headers()[CONTENT_TYPE], "image/svg+xml");
    assert!(text(response).await.starts_with("<svg "));
    assert_eq!(relay.get("/relay/docs/nothing").await.status(), 401);
}

#[tokio::test]
async fn other_paths_below_the_page_need_a_credential() {
    let ann = User::new("ann", "\"list\"", "");
    let relay = Relay::with_users(&[], &[&ann]).await;
    for path in [
        "/relay/page/",
        "/relay/page/index.html",
        "/relay/page/../page.rs",
        "/relay/page/none.js",
        "/relay/v1/whoami",
    ] {
        assert_eq!(relay.get(path).await.status(), 401, "{path}");
    }
    let response = relay.get_as(&token_of("ann"), "/relay/page/none.js").await;
    assert_eq!(response.status(), 404);
    let response = relay.ask_as(&token_of("ann"), "POST", "/relay/").await;
    assert_eq!(response.status(), 405);
}

/// The content security policy forbids most of these. The scripts must not turn text into markup.
#[test]
fn page_has_no_inline_code_and_no_external_resources() {
    let all_files = files();
    for (name, content) in &all_files {
        let checked = content.replace("http://www.w3.org/2000/svg", "");
        for address in ["http://", "https://", "ws://", "wss://"] {
            assert!(!checked.contains(address), "{address} in {name}");
        }
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "new Function",
            "localStorage",
            "document.cookie",
        ] {
            assert!(!content.contains(forbidden), "{forbidden} in {name}");
        }
        for import in content.split(" from './").skip(1) {
            let imported = import.split('\'').next().unwrap();
            assert!(
                all_files.iter().any(|(name, _)| name == imported),
                "{name} imports {imported}"
            );
        }
    }
    let (_, index) = all_files
        .iter()
        .find(|(name, _)| name == "index.html")
        .unwrap();
    assert!(!index.contains("<style") && !index.contains(" style="));
    for script in index.split("<script").skip(1) {
        assert!(
            script.starts_with(" type=\"module\" src=\"page/"),
            "{script}"
        );
    }
    for attribute in ["src=\"", "href=\""] {
        for address in index.split(attribute).skip(1) {
            assert!(!address.starts_with('/'), "an absolute path: {address}");
        }
    }
}

async fn scopes(relay: &Relay, subject: &str, query: &str) -> String {
    let path = format!("/relay/v1/whoami{query}");
    let answer = json(relay.get_as(&token_of(subject), &path).await).await;
    assert_eq!(answer["subject"], subject);
    let scopes = answer["scopes"].as_array().unwrap().iter();
    let scopes: Vec<_> = scopes.map(|word| word.as_str().unwrap()).collect();
    scopes.join(",")
}

#[tokio::test]
async fn whoami_reports_own_permissions() {
    let narrow = "jobs = [\"01000000\"]";
    let ann = User::new("ann", "\"list\", \"debug\"", narrow);
    let bob = User::new("bob", "\"list\"", "");
    let eve = User::new("eve", "\"debug\"", "");
    let relay = Relay::with_users(&[], &[&ann, &bob, &eve]).await;
    relay.registry.insert(breakpoint("aa11"));
    let mut other = breakpoint("bb22");
    other.names_mut().job_id = Some("02000000".to_owned());
    relay.registry.insert(other);
    let [here, there] = ["aa11", "bb22"].map(|id| format!("?breakpoint={}", breakpoint(id).id));
    for (subject, query, expected) in [
        ("ann", "", "list,view,debug"),
        ("ann", &*here, "list,view,debug"),
        // A hidden breakpoint gets the same answer as an unknown one.
        ("ann", &*there, ""),
        ("ann", "?breakpoint=zzzzzzzz", ""),
        ("bob", "", "list"),
        ("bob", &*there, "list"),
        ("eve", "", "view,debug"),
        ("eve", &*here, ""),
    ] {
        let scopes_of_user = scopes(&relay, subject, query).await;
        assert_eq!(scopes_of_user, expected, "{subject} {query}");
    }
    let response = relay.get_as(&token_of("ann"), "/relay/v1/whoami?x=1").await;
    assert_eq!(response.status(), 400);

    let open_relay = Relay::start(&[], |_| {}).await;
    let answer = json(open_relay.get("/relay/v1/whoami").await).await;
    assert_eq!(answer["subject"], serde_json::Value::Null);
    assert!(answer["scopes"].as_array().unwrap().len() > 5, "{answer}");
}
