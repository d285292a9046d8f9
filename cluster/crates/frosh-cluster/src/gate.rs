//! Lets only executors of this release join a cluster.
//!
//! A partial sketch must have the same bytes on whichever machine it is made, and an executor without frosh's functions
//! fails with an error that does not say so. So the id of an executor begins with its release, and the scheduler refuses
//! other ids when they register.

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::error::{BallistaError, Result};
use ballista_core::serde::protobuf::ExecutorHeartbeat;
use ballista_core::serde::scheduler::{ExecutorData, ExecutorMetadata};
use ballista_scheduler::cluster::{BoundTask, ClusterState, ClusterStateEventStream, ExecutorSlot};
use ballista_scheduler::config::TaskDistributionPolicy;
use ballista_scheduler::state::task_manager::JobInfoCache;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the ids of our executors begin with.
pub(crate) fn prefix() -> String {
    format!("frosh-{}-", frosh_sql::VERSION)
}

/// The id of a new executor.
pub(crate) fn new_id() -> String {
    format!("{}{}", prefix(), uuid::Uuid::new_v4())
}

/// Refuses the id of an executor that is not ours.
pub(crate) fn check(id: &str, host: &str, port: u16) -> std::result::Result<(), String> {
    if id.starts_with(&prefix()) {
        return Ok(());
    }
    let what = match id.strip_prefix("frosh-").and_then(|rest| rest.split_once('-')) {
        Some((version, _)) => format!("is of frosh-cluster {version}"),
        None => "has no frosh functions: it is not a frosh-cluster executor".into(),
    };
    Err(format!(
        "the executor at {host}:{port} {what}, and this is frosh-cluster {}: run the same release of frosh-cluster on all \
         machines",
        frosh_sql::VERSION
    ))
}

/// The state of a cluster, with a check of every executor that wants to join.
pub(crate) struct Gate(pub(crate) Arc<dyn ClusterState>);

fn admit(metadata: &ExecutorMetadata) -> Result<()> {
    check(&metadata.id, &metadata.host, metadata.port).map_err(BallistaError::General)
}

#[async_trait]
impl ClusterState for Gate {
    async fn init(&self) -> Result<()> {
        self.0.init().await
    }

    async fn bind_schedulable_tasks(
        &self,
        distribution: TaskDistributionPolicy,
        active_jobs: Arc<HashMap<JobId, JobInfoCache>>,
        executors: Option<HashSet<String>>,
    ) -> Result<Vec<BoundTask>> {
        self.0.bind_schedulable_tasks(distribution, active_jobs, executors).await
    }

    async fn unbind_tasks(&self, executor_slots: Vec<ExecutorSlot>) -> Result<()> {
        self.0.unbind_tasks(executor_slots).await
    }

    async fn register_executor(
        &self,
        metadata: ExecutorMetadata,
        spec: ExecutorData,
    ) -> Result<()> {
        admit(&metadata)?;
        self.0.register_executor(metadata, spec).await
    }

    async fn save_executor_metadata(&self, metadata: ExecutorMetadata) -> Result<()> {
        admit(&metadata)?;
        self.0.save_executor_metadata(metadata).await
    }

    async fn get_executor_metadata(&self, executor_id: &str) -> Result<ExecutorMetadata> {
        self.0.get_executor_metadata(executor_id).await
    }

    async fn registered_executor_metadata(&self) -> Vec<ExecutorMetadata> {
        self.0.registered_executor_metadata().await
    }

    async fn save_executor_heartbeat(&self, heartbeat: ExecutorHeartbeat) -> Result<()> {
        self.0.save_executor_heartbeat(heartbeat).await
    }

    async fn remove_executor(&self, executor_id: &str) -> Result<()> {
        self.0.remove_executor(executor_id).await
    }

    fn executor_heartbeats(&self) -> HashMap<String, ExecutorHeartbeat> {
        self.0.executor_heartbeats()
    }

    fn get_executor_heartbeat(&self, executor_id: &str) -> Option<ExecutorHeartbeat> {
        self.0.get_executor_heartbeat(executor_id)
    }

    async fn cluster_state_events(&self) -> Result<ClusterStateEventStream> {
        self.0.cluster_state_events().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_release_joins() {
        assert_eq!(check(&new_id(), "a", 1), Ok(()));
        let other = check("frosh-0.0.9-1234", "10.0.0.7", 50051).unwrap_err();
        assert!(other.contains("10.0.0.7:50051 is of frosh-cluster 0.0.9"), "{other}");
        let plain = check("0193-uuid", "b", 2).unwrap_err();
        assert!(plain.contains("has no frosh functions"), "{plain}");
    }
}
