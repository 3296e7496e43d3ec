//! Installed editors load what `launch-config` prints.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::support::run;

/// Runs `editor`, which has to load `configuration` from a file and say what it made of it.
fn loaded(
    editor: &str,
    arguments: impl Fn(&str) -> Vec<String>,
    printed: &[&str],
) -> Option<Output> {
    if Command::new(editor).arg("--version").output().is_err() {
        assert!(
            std::env::var_os("CI").is_none(),
            "cannot run under CI: {editor} is not installed"
        );
        eprintln!("SKIPPED a test: {editor} is not installed");
        return None;
    }
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("configuration");
    std::fs::write(&file, run(printed).stdout).unwrap();
    let output = Command::new(editor)
        .args(arguments(file.to_str().unwrap()))
        .env("HOME", home.path())
        .output()
        .unwrap();
    Some(output)
}

const BREAKPOINT: [&str; 2] = ["--breakpoint", "3k9x7a2q"];

#[test]
fn neovim_loads_its_configuration() {
    let script = |file: &str| {
        let dap = "package.loaded.dap = {adapters = {}, configurations = {}}";
        let show = "local c = require('dap').configurations.python[1] \
                    io.stdout:write(c.type, ' ', c.rayRelay.breakpoint or tostring(c.rayRelay.all), ' ', \
                    c.workspaceFolder == vim.fn.getcwd() and 'here ' or '', \
                    require('dap').adapters.ray_relay.port)";
        let lua = |text: &str| format!("lua {text}");
        let commands = [lua(dap), format!("luafile {file}"), lua(show), "qa!".into()];
        let start = ["--headless", "--clean"].map(str::to_owned);
        let commands = commands.into_iter().flat_map(|c| ["-c".to_owned(), c]);
        start.into_iter().chain(commands).collect()
    };
    let all = ["launch-config", "nvim"];
    for (printed, expected) in [
        (all.to_vec(), "ray_relay true here 5678"),
        (
            [&all[..], &BREAKPOINT].concat(),
            "ray_relay 3k9x7a2q here 5678",
        ),
    ] {
        let Some(output) = loaded("nvim", script, &printed) else {
            return;
        };
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            expected,
            "{output:?}"
        );
    }
}

#[test]
fn emacs_loads_its_configuration() {
    let script = |file: &str| {
        let show = "(let ((it (cdr (assq 'ray-relay dape-configs))))
            (princ (format \"%s %s %S %s%s\" (plist-get it 'host) (plist-get it 'port) (plist-get it :rayRelay)
                (plist-get it :workspaceFolder) (if (memq 'dape--kill-busy-wait kill-emacs-hook) \" leaves\" \"\"))))";
        [
            "--batch",
            "--eval",
            "(progn (defvar dape-configs nil) (defun dape--kill-busy-wait ()) (add-hook 'kill-emacs-hook #'dape--kill-busy-wait)
                (provide 'dape))",
            "-l",
            file,
            "--eval",
            show,
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let all = ["launch-config", "emacs"];
    for (printed, expected) in [
        (all.to_vec(), "127.0.0.1 5678 (:all t) dape-cwd"),
        (
            [&all[..], &BREAKPOINT].concat(),
            "127.0.0.1 5678 (:breakpoint \"3k9x7a2q\") dape-cwd",
        ),
    ] {
        let Some(output) = loaded("emacs", script, &printed) else {
            return;
        };
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(shown, expected, "{output:?}");
    }
}

/// The paths of a stack of `paths` that an editor gets to see.
fn passing(paths: &[String]) -> Vec<String> {
    let frame =
        |path| json!({"id": 1, "name": "f", "line": 1, "column": 1, "source": {"path": path}});
    let frames: Vec<Value> = paths.iter().map(frame).collect();
    let mut stack = json!({"seq": 1, "type": "response", "request_seq": 1, "success": true, "command": "stackTrace",
        "body": {"stackFrames": frames, "totalFrames": paths.len()}});
    ray_relay_dap::wall::clean(&mut stack);
    let frames = stack["body"]["stackFrames"].as_array().unwrap().iter();
    let path = |frame: &Value| frame["source"]["path"].as_str().map(str::to_owned);
    frames.filter_map(path).collect()
}

/// Returns the programs that Emacs starts for `paths` as dape opens a frame's, with TRAMP in its `syntax`.
fn started_by_emacs(paths: &[String], syntax: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("started");
    std::fs::write(&log, "").unwrap();
    for name in [
        "ssh", "sudo", "su", "scp", "rsync", "docker", "podman", "kubectl", "plink", "adb",
    ] {
        let program = home.path().join(name);
        let script = format!(
            "#!/bin/sh\necho {name} \"$@\" >> '{}'\nexit 1\n",
            log.display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    }
    let list = home.path().join("paths");
    std::fs::write(&list, paths.join("\n")).unwrap();
    let script = format!(
        "(progn (require 'tramp) (tramp-change-syntax '{syntax}) (setq tramp-verbose 0 default-directory \"{}/\")
            (dolist (path (with-temp-buffer (insert-file-contents \"{}\") (split-string (buffer-string) \"\\n\")))
              (ignore-errors (file-exists-p path))
              (ignore-errors (find-file-noselect path))))",
        home.path().display(),
        list.display()
    );
    let path = std::env::var("PATH").unwrap();
    let ended = Command::new("emacs")
        .args(["--batch", "--quick", "--eval", &script])
        .env("HOME", home.path())
        .env("PATH", format!("{}:{path}", home.path().display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    std::fs::read_to_string(&log).unwrap()
}

/// A worker names the files of its stack, and TRAMP starts `ssh` or `sudo` for names of other machines.
#[test]
fn emacs_does_not_run_programs_for_worker_paths() {
    if loaded("emacs", |_| vec!["--version".to_owned()], &["--version"]).is_none() {
        return;
    }
    let before = [
        "",
        "/",
        "//",
        "/./",
        "/././",
        "/x/../",
        "/x//../",
        "/x/y/../../",
        "./",
        "../",
        "~/",
        "/~/",
        "/:/",
        "/.//",
        "/x/",
        "\\",
        "/\\",
        "C:/",
        "/C:/",
        "\\.\\",
        "\\x\\..\\",
    ];
    let remote = [
        "ssh:host:/y",
        "sudo:root@localhost:/y",
        "sudo::/y",
        "host:/y",
        "user@host:/y",
        "-:host:/y",
        "ssh:host|sudo:host:/y",
        "docker:box:/y",
        "[ssh/host]/y",
        "[sudo/root@localhost]/y",
        "[host]/y",
    ];
    let all = before
        .iter()
        .flat_map(|before| remote.map(|remote| format!("{before}{remote}")));
    let own = [
        "/home/me/a.py",
        "<ipython-input-1-0a>",
        "/tmp/ray/session_2026-11-28_22-25-23_1_7/a.py",
        "a.py",
    ];
    let own = own.map(str::to_owned);
    let all: Vec<String> = all.chain(own.clone()).collect();
    let passing = passing(&all);
    for path in &own {
        assert!(passing.contains(path), "{path}");
    }
    for (syntax, remote) in [
        ("default", "/x/../sudo:root@localhost:/y"),
        ("default", "/./ssh:host:/y"),
        ("simplified", "/./host:/y"),
        ("separate", "/./[ssh/host]/y"),
    ] {
        let planted = started_by_emacs(&[remote.to_owned()], syntax);
        assert!(!planted.is_empty(), "{remote} starts nothing in this Emacs");
        assert_eq!(
            started_by_emacs(&passing, syntax),
            "",
            "{syntax}: {passing:?}"
        );
    }
}
