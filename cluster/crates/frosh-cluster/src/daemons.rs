//! The scheduler and the executor: Ballista's own, with our functions and settings.

use crate::gate::{self, Gate};
use crate::session::{self, MAX_MESSAGE};
use anyhow::{Context as _, Result, bail};
use ballista_core::object_store::runtime_env_with_s3_support;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::start_server;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Run the scheduler of a cluster: it plans jobs and gives tasks to executors.
#[derive(Args)]
#[command(after_help = "Example:
  frosh-cluster scheduler --bind 0.0.0.0:50050

Clients and executors must be able to reach the port. It has no passwords: keep it on a trusted network. A scheduler that
ends loses its running jobs; their clients get an error at once.")]
pub(crate) struct Scheduler {
    /// Address and port to listen on
    #[arg(long, default_value = "127.0.0.1:50050", value_name = "HOST:PORT")]
    bind: SocketAddr,
    /// Seconds without a sign of life after which an executor is given up and its tasks run elsewhere
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    executor_timeout: u64,
}

impl Scheduler {
    pub(crate) async fn run(&self) -> Result<()> {
        if self.executor_timeout < 10 {
            bail!(
                "--executor-timeout must be 10 seconds or more: executors report every 5 seconds"
            );
        }
        let config = SchedulerConfig {
            bind_host: self.bind.ip().to_string(),
            bind_port: self.bind.port(),
            external_host: self.bind.ip().to_string(),
            // By default one executor gets all tasks that it has slots for.
            task_distribution: TaskDistributionPolicy::RoundRobin,
            executor_timeout_seconds: self.executor_timeout,
            expire_dead_executor_interval_seconds: 5,
            no_executors_grace_period_seconds: self.executor_timeout,
            grpc_server_max_decoding_message_size: MAX_MESSAGE,
            grpc_server_max_encoding_message_size: MAX_MESSAGE,
            grpc_client_max_message_size: MAX_MESSAGE,
            override_config_producer: Some(Arc::new(session::config)),
            override_session_builder: Some(Arc::new(session::state)),
            ..SchedulerConfig::default()
        };
        let cluster = BallistaCluster::new_from_config(&config).await?;
        let gate = Arc::new(Gate(cluster.cluster_state()));
        let cluster = BallistaCluster::new(gate, cluster.job_state());
        start_server(cluster, self.bind, Arc::new(config))
            .await
            .with_context(|| format!("the scheduler at {} ended", self.bind))
    }
}

/// Run an executor: it does the work of a cluster.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh-cluster executor --scheduler df://10.0.0.1:50050 --host 10.0.0.2
  frosh-cluster executor --scheduler df://10.0.0.1:50050 --host 10.0.0.2 --slots 4 --work-dir /fast/disk

The scheduler, the clients and the other executors must be able to reach HOST at both ports. An executor that the scheduler
has given up ends: let a supervisor (systemd, Kubernetes) start it again. Keys of S3 come from the environment:
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT, AWS_ALLOW_HTTP.")]
pub(crate) struct Executor {
    /// The scheduler
    #[arg(long, default_value = "df://127.0.0.1:50050", value_name = "URL")]
    scheduler: String,
    /// Address of this machine, as others reach it
    #[arg(long, default_value = "127.0.0.1", value_name = "HOST")]
    host: String,
    /// Address to listen on; by default the same
    #[arg(long, value_name = "HOST")]
    bind_host: Option<String>,
    /// Port for data
    #[arg(long, default_value_t = 50051, value_name = "PORT")]
    port: u16,
    /// Port for tasks
    #[arg(long, default_value_t = 50052, value_name = "PORT")]
    task_port: u16,
    /// Tasks at a time; by default one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    slots: Option<u16>,
    /// Folder for partial results; by default a temporary one
    #[arg(long, value_name = "FOLDER")]
    work_dir: Option<PathBuf>,
    /// Bytes of memory for all tasks together; by default 70 % of the machine's, 0 for no limit
    #[arg(long, value_name = "BYTES")]
    memory: Option<u64>,
    /// Seconds to wait for the scheduler
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    connect_timeout: u16,
}

impl Executor {
    pub(crate) async fn run(&self) -> Result<()> {
        let (scheduler_host, scheduler_port) = crate::client::host_and_port(&self.scheduler)?;
        let registry = BallistaFunctionRegistry::from(&session::state(session::config())?);
        let work_dir = match &self.work_dir {
            None => None,
            Some(path) => {
                std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
                Some(path.display().to_string())
            }
        };
        let defaults = ExecutorProcessConfig::default();
        let config = ExecutorProcessConfig {
            executor_id: gate::new_id(),
            bind_host: self.bind_host.clone().unwrap_or_else(|| self.host.clone()),
            external_host: Some(self.host.clone()),
            port: self.port,
            grpc_port: self.task_port,
            scheduler_host,
            scheduler_port,
            scheduler_connect_timeout_seconds: self.connect_timeout,
            vcores: self.slots.map_or(defaults.vcores, usize::from),
            work_dir,
            // Partial results of jobs that ended long ago.
            job_data_ttl_seconds: 24 * 3600,
            job_data_clean_up_interval_seconds: 1800,
            grpc_max_decoding_message_size: MAX_MESSAGE,
            grpc_max_encoding_message_size: MAX_MESSAGE,
            executor_heartbeat_interval_seconds: 5,
            memory_pool_size: self.memory,
            override_function_registry: Some(Arc::new(registry)),
            override_config_producer: Some(Arc::new(session::config)),
            override_runtime_producer: Some(Arc::new(runtime_env_with_s3_support)),
            ..defaults
        };
        start_executor_process(Arc::new(config)).await.with_context(|| {
            format!(
                "the executor at {}:{} ended; its scheduler is {}",
                self.host, self.port, self.scheduler
            )
        })
    }
}

#[cfg(test)]
#[path = "daemons_tests.rs"]
mod tests;
