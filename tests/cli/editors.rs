//! What `launch-config` prints is read by the editors themselves, where they are installed.

use std::process::{Command, Output};

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
