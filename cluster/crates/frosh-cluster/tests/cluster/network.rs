//! Machines of a cluster as network namespaces, each with an address of its own, joined by a bridge in one more namespace.
//! Nothing outside of these namespaces is changed.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Namespaces that are removed at the end.
pub(crate) struct Network {
    hub: String,
    nodes: Vec<String>,
}

fn ip(arguments: &str) -> Result<(), String> {
    let output =
        Command::new("ip").args(arguments.split(' ')).output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Network {
    /// A network of so many machines, or why there can be none: it needs the program `ip` and the rights of root.
    pub(crate) fn new(machines: usize) -> Result<Self, String> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("frosh-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        // Made before the first command, so that what was begun is removed after a failure.
        let mut network = Self { hub: format!("{name}-hub"), nodes: Vec::new() };
        let hub = network.hub.clone();
        ip(&format!("netns add {hub}"))?;
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        for machine in 0..machines {
            let node = format!("{name}-{machine}");
            ip(&format!("netns add {node}"))?;
            network.nodes.push(node.clone());
            ip(&format!("-n {hub} link add port{machine} type veth peer name net netns {node}"))?;
            ip(&format!("-n {hub} link set port{machine} master bridge"))?;
            ip(&format!("-n {hub} link set port{machine} up"))?;
            ip(&format!("-n {node} addr add {}/24 dev net", network.address(machine)))?;
            ip(&format!("-n {node} link set net up"))?;
            ip(&format!("-n {node} link set lo up"))?;
        }
        Ok(network)
    }

    pub(crate) fn machines(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn address(&self, machine: usize) -> String {
        format!("10.77.0.{}", machine + 1)
    }

    /// A command that runs on a machine.
    pub(crate) fn command(&self, machine: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.nodes[machine], program]);
        command
    }

    /// Pulls or plugs the cable of a machine.
    pub(crate) fn set_link(&self, machine: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        ip(&format!("-n {} link set port{machine} {state}", self.hub)).unwrap();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.nodes.iter().chain([&self.hub]) {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
