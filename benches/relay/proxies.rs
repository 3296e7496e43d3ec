//! The proxies under test, as processes: the relay of this build, and HAProxy where it is installed.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::client::Target;
use crate::worker::Workers;
use crate::{BULK_SESSIONS, Result, SESSIONS};

/// How long a proxy may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends its process when dropped.
struct Running {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Running {
    fn start(mut command: Command, address: SocketAddr, log: PathBuf) -> std::io::Result<Self> {
        let output = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Self {
            child,
            address,
            log,
        })
    }

    /// Tries `ready` until it says yes.
    async fn wait(&mut self, ready: impl AsyncFn(SocketAddr) -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        loop {
            let last = match ready(self.address).await {
                Ok(true) => return Ok(()),
                Ok(false) => "not ready".to_owned(),
                Err(error) => error.to_string(),
            };
            let ended = self.child.try_wait()?.is_some();
            if ended || start.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("{} did not start: {last}\n{log}", self.log.display()).into());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `ray-relay serve` in front of the fake head.
pub(crate) struct Relay(Running);

impl Relay {
    pub(crate) async fn start(workers: &Workers, directory: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
        command
            .arg("serve")
            .arg("--listen")
            .arg(address.to_string());
        command
            .arg("--ray-address")
            .arg(format!("http://{}", workers.head));
        // Neither a configuration nor a token of whoever runs this.
        command
            .env_clear()
            .env("HOME", directory)
            .current_dir(directory);
        let mut running = Running::start(command, address, directory.join("ray-relay.log"))?;
        running
            .wait(async |address| Ok(listed(address).await? == SESSIONS + BULK_SESSIONS))
            .await?;
        Ok(Self(running))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.child.id()
    }

    pub(crate) fn target(&self, workers: &Workers, index: usize) -> Target {
        Target {
            address: self.0.address,
            worker: Some(workers.list[index].id.clone()),
        }
    }
}

/// HAProxy in TCP mode, with the defaults of its package, in front of the first worker that is measured and, at
/// another port, of the first for bulk transfers.
pub(crate) struct HaProxy {
    running: Running,
    bulk: SocketAddr,
    /// As it prints it.
    pub(crate) version: String,
}

impl HaProxy {
    /// `None` where it is not installed.
    pub(crate) async fn start(workers: &Workers, directory: &Path) -> Result<Option<Self>> {
        // Debian keeps it out of the PATH of ordinary users.
        let found = ["haproxy", "/usr/sbin/haproxy"]
            .iter()
            .find_map(|program| Some((program, Command::new(program).arg("-v").output().ok()?)));
        let Some((program, output)) = found else {
            return Ok(None);
        };
        let version = String::from_utf8_lossy(&output.stdout);
        let version = version.split_whitespace().nth(2).unwrap_or("?").to_owned();

        let (address, bulk) = (free_address()?, free_address()?);
        let file = directory.join("haproxy.cfg");
        std::fs::write(
            &file,
            format!(
                "global\n  maxconn 1024\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 10m\n  timeout server 10m\n\
                 listen debug\n  bind {address}\n  server worker {}\n\
                 listen bulk\n  bind {bulk}\n  server worker {}\n",
                workers.list[0].address, workers.list[SESSIONS].address
            ),
        )?;
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(&file);
        let mut running = Running::start(command, address, directory.join("haproxy.log"))?;
        running
            .wait(async |address| Ok(TcpStream::connect(address).await.is_ok()))
            .await?;
        Ok(Some(Self {
            running,
            bulk,
            version,
        }))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.child.id()
    }

    pub(crate) fn target(&self, index: usize) -> Target {
        Target {
            address: if index < SESSIONS {
                self.running.address
            } else {
                self.bulk
            },
            worker: None,
        }
    }
}

/// How many breakpoints the relay lists.
async fn listed(address: SocketAddr) -> Result<usize> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET /relay/v1/breakpoints HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.matches("\"worker_id\"").count())
}

/// A loopback address that is free now, below the range of outgoing connections, which could
/// otherwise take the port before the proxy does.
fn free_address() -> Result<SocketAddr> {
    for _ in 0..100 {
        let port = rand::random_range(20_000..32_000);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Ok(listener.local_addr()?);
        }
    }
    Err("no free port between 20000 and 32000".into())
}
