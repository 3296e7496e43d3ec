//! A process that ends with this one, whatever way this one ends.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A shell that runs a process until the shell's standard input closes, or names a signal to end it.
pub(crate) struct Held(Child);

impl Held {
    /// `command` with `arguments`, which writes to the end of `log`.
    pub(crate) fn start(command: &Path, arguments: &[String], log: &Path) -> Self {
        let open = || File::options().append(true).create(true).open(log).unwrap();
        let script = "\"$@\" & pid=$!; read -r signal; kill -\"${signal:-KILL}\" $pid; wait $pid 2>/dev/null";
        let held = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(command)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(open())
            .stderr(open())
            // An interrupt at the terminal is for the tests: this ends by its standard input.
            .process_group(0)
            .spawn();
        Self(held.unwrap())
    }
}

impl Drop for Held {
    /// Ends it at once, and waits for that.
    fn drop(&mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            let _ = stdin.write_all(b"KILL\n");
        }
        let _ = self.0.wait();
    }
}
