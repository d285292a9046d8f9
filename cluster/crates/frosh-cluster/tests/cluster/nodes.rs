//! A scheduler, executors and a client.

use crate::data::{PROGRAM, skipped};
use crate::network::Network;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One cluster at a time: the machine has few cores, and the tests have time limits.
static ONE: Mutex<()> = Mutex::new(());

/// A process and its log.
pub(crate) struct Node {
    pub(crate) child: Child,
    pub(crate) log: PathBuf,
}

impl Node {
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    pub(crate) fn kill(&mut self) {
        // SIGKILL: the process cannot say goodbye.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Cluster {
    // Processes end before their network goes.
    pub(crate) scheduler: Node,
    pub(crate) executors: Vec<Node>,
    pub(crate) network: Option<Network>,
    address: String,
    folder: PathBuf,
    /// Environment of all processes.
    environment: Vec<(String, String)>,
    started: usize,
    _one: MutexGuard<'static, ()>,
}

/// Waits until something holds; panics with its name after `seconds`.
pub(crate) fn wait(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(seconds), "waited {seconds} s for: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A port on loopback that nobody listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Cluster {
    /// A scheduler and executors with one slot each, in network namespaces if the rights allow it, else on loopback.
    pub(crate) fn start(folder: &Path, executors: usize) -> Self {
        Self::start_with(folder, executors, true, Vec::new())
    }

    pub(crate) fn start_with(
        folder: &Path,
        executors: usize,
        namespaces: bool,
        environment: Vec<(String, String)>,
    ) -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let network = match namespaces {
            true => Network::new(executors + 2),
            false => Err(String::new()),
        };
        if let (true, Err(why)) = (namespaces, &network) {
            eprintln!("no network namespaces, all on loopback: {why}");
        }
        let network = network.ok();
        let address = match &network {
            Some(network) => format!("{}:50050", network.address(0)),
            None => format!("127.0.0.1:{}", free_port()),
        };
        let folder = folder.to_owned();
        let scheduler = spawn_scheduler(network.as_ref(), &address, &folder, &environment, 0);
        let mut cluster = Self {
            scheduler,
            executors: Vec::new(),
            network,
            address,
            folder,
            environment,
            started: 0,
            _one: one,
        };
        wait("the scheduler to listen", 30, || cluster.scheduler.log().contains("listening on"));
        for machine in 1..=executors {
            let executor = cluster.spawn_executor(machine, 1);
            cluster.executors.push(executor);
        }
        cluster.wait_for_executors(executors);
        cluster
    }

    /// Waits until the scheduler has let so many executors in.
    pub(crate) fn wait_for_executors(&self, count: usize) {
        wait("executors to join", 60, || {
            self.scheduler.log().matches("Received register executor request").count() >= count
        });
        // Registered, and not only asked to be.
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Starts an executor on a machine, from 1.
    pub(crate) fn spawn_executor(&mut self, machine: usize, slots: usize) -> Node {
        self.started += 1;
        let mut command = on(self.network.as_ref(), machine);
        command.args(["executor", "--scheduler", &self.url(), "--slots", &slots.to_string()]);
        match &self.network {
            Some(network) => command.args(["--host", &network.address(machine)]),
            None => {
                let (port, task_port) = (free_port().to_string(), free_port().to_string());
                command.args(["--port", &port, "--task-port", &task_port])
            }
        };
        let log = self.folder.join(format!("executor-{}.log", self.started));
        spawn(command, log, &self.environment)
    }

    /// Ends the scheduler and starts a new one at the same address.
    pub(crate) fn restart_scheduler(&mut self) {
        self.scheduler.kill();
        self.started += 1;
        let network = self.network.as_ref();
        self.scheduler =
            spawn_scheduler(network, &self.address, &self.folder, &self.environment, self.started);
        wait("the scheduler to listen", 30, || self.scheduler.log().contains("listening on"));
    }

    pub(crate) fn url(&self) -> String {
        format!("df://{}", self.address)
    }

    /// A command of the client, which has a machine of its own.
    pub(crate) fn client(&self, verb: &str) -> Command {
        let last = self.network.as_ref().map_or(0, |network| network.machines() - 1);
        let mut command = on(self.network.as_ref(), last);
        command.args([verb, "--scheduler", &self.url()]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// How many partial aggregates each executor has run, by its own log.
    pub(crate) fn partials(&self) -> Vec<usize> {
        self.executors.iter().map(partials).collect()
    }
}

/// How many partial aggregates an executor has run.
pub(crate) fn partials(executor: &Node) -> usize {
    executor.log().matches("AggregateExec: mode=Partial").count()
}

fn on(network: Option<&Network>, machine: usize) -> Command {
    match network {
        Some(network) => network.command(machine, PROGRAM),
        None => Command::new(PROGRAM),
    }
}

fn spawn_scheduler(
    network: Option<&Network>,
    address: &str,
    folder: &Path,
    environment: &[(String, String)],
    number: usize,
) -> Node {
    let mut command = on(network, 0);
    command.args(["scheduler", "--bind", address, "--executor-timeout", "15"]);
    spawn(command, folder.join(format!("scheduler-{number}.log")), environment)
}

fn spawn(mut command: Command, log: PathBuf, environment: &[(String, String)]) -> Node {
    let file = File::create(&log).unwrap();
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    Node { child: command.spawn().unwrap(), log }
}

/// Says that a test needs namespaces.
pub(crate) fn needs_namespaces(cluster: &Cluster) -> bool {
    if cluster.network.is_none() {
        skipped("network namespaces need the program ip and the rights of root");
    }
    cluster.network.is_some()
}
