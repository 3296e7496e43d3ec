//! A client command on a pseudo-terminal.

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
    controller: File,
    child: Child,
    screen: String,
}

impl Screen {
    pub(crate) fn start(scene: &Scene<'_>, args: &[&str]) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let path = ptsname(&controller, Vec::new()).unwrap();
        let device = File::options()
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
            .stdin(device.try_clone().unwrap())
            .stdout(device.try_clone().unwrap())
            .stderr(device)
            .spawn()
            .unwrap();
        let mut screen = Self {
            controller: controller.into(),
            child,
            screen: String::new(),
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
        rustix::termios::tcsetwinsize(&self.controller, size).unwrap();
    }

    /// Reads until `expected`, and returns the output up to it.
    pub(crate) fn expect(&mut self, expected: &str) -> String {
        loop {
            if let Some(at) = self.screen.find(expected) {
                let rest = self.screen.split_off(at + expected.len());
                return std::mem::replace(&mut self.screen, rest);
            }
            let mut from = self.controller.try_clone().unwrap();
            let (sender, receiver) = std::sync::mpsc::channel();
            // A terminal has no read timeout, so a thread without input is abandoned.
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                let read = from.read(&mut buffer).unwrap_or(0);
                let _ = sender.send(buffer[..read].to_vec());
            });
            match receiver.recv_timeout(Duration::from_secs(90)) {
                Ok(read) if !read.is_empty() => self.screen += &String::from_utf8_lossy(&read),
                _ => panic!("{expected:?} did not come, only {:?}", self.screen),
            }
        }
    }

    pub(crate) fn type_(&mut self, keys: &str) {
        self.controller.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line, and reads until `expected`.
    pub(crate) fn line(&mut self, line: &str, expected: &str) -> String {
        self.type_(&format!("{line}\r"));
        self.expect(expected)
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
