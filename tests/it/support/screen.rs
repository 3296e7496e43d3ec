//! A client command on a pseudo-terminal, as a person sees and types it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::time::Duration;

use super::eventually;
use super::scene::Scene;

/// The program under test.
pub(crate) const RELAY: &str = env!("CARGO_BIN_EXE_ray-relay");

/// A pseudo-terminal with a program on it.
pub(crate) struct Screen {
    ours: File,
    child: Child,
    seen: String,
}

impl Screen {
    pub(crate) fn start(scene: &Scene<'_>, args: &[&str]) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options()
            .read(true)
            .write(true)
            .open(path.to_str().unwrap())
            .unwrap();
        let home = tempfile::tempdir().unwrap();
        // The terminal has to be the program's own, for Ctrl-C to be a signal.
        let child = scene
            .cluster
            .exec("client", "setsid")
            .args(["--ctty", "--wait", RELAY])
            .args(args)
            .envs(scene.settings())
            .env("TERM", "xterm")
            .env("XDG_STATE_HOME", home.path())
            .env_remove("NO_COLOR")
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs)
            .spawn()
            .unwrap();
        let mut screen = Self {
            ours: ours.into(),
            child,
            seen: String::new(),
        };
        screen.resize(100);
        screen
    }

    pub(crate) fn resize(&mut self, columns: u16) {
        let size = rustix::termios::Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&self.ours, size).unwrap();
    }

    /// Reads until `wanted` has come, and gives what came before it.
    pub(crate) fn expect(&mut self, wanted: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(wanted) {
                let rest = self.seen.split_off(at + wanted.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let mut from = self.ours.try_clone().unwrap();
            let (tell, told) = std::sync::mpsc::channel();
            // A terminal has no read timeout: the thread is left behind where nothing comes.
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                let read = from.read(&mut buffer).unwrap_or(0);
                let _ = tell.send(buffer[..read].to_vec());
            });
            match told.recv_timeout(Duration::from_secs(90)) {
                Ok(read) if !read.is_empty() => self.seen += &String::from_utf8_lossy(&read),
                _ => panic!("{wanted:?} did not come, only {:?}", self.seen),
            }
        }
    }

    pub(crate) fn type_(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line and reads on to `wanted`.
    pub(crate) fn line(&mut self, line: &str, wanted: &str) -> String {
        self.type_(&format!("{line}\r"));
        self.expect(wanted)
    }

    pub(crate) fn exit(&mut self) -> Option<i32> {
        eventually("the end of the program", Duration::from_secs(60), || {
            self.child.try_wait().unwrap()
        })
        .code()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
