//! The one place that makes sessions: scheduler, executors, clients and local runs all have the same functions and
//! settings.

use ballista::prelude::SessionContextExt;
use ballista_core::config::{
    BALLISTA_ADAPTIVE_PLANNER_ENABLED, BALLISTA_CLIENT_GRPC_CONNECT_TIMEOUT_SECONDS,
    BALLISTA_CLIENT_GRPC_MAX_MESSAGE_SIZE, BALLISTA_JOB_NAME,
    BALLISTA_SCHEDULER_MAX_PARTITIONS_PER_TASK,
};
use ballista_core::object_store::{session_config_with_s3_support, session_state_with_s3_support};
use datafusion::common::Result;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::prelude::{SessionConfig, SessionContext};

/// The largest message between processes. A partial sketch is one message: 12 MB at 384 dimensions with the default sample.
pub(crate) const MAX_MESSAGE: u32 = 1 << 30;

/// Seconds that a client waits for a connection.
const CONNECT_SECONDS: &str = "10";

/// Settings of every session.
pub(crate) fn config() -> SessionConfig {
    let settings = [
        // With the adaptive planner, a job whose executor dies after its partial aggregates hangs for ever.
        (BALLISTA_ADAPTIVE_PLANNER_ENABLED, "false".to_owned()),
        // By default one executor gets all partitions of a stage.
        (BALLISTA_SCHEDULER_MAX_PARTITIONS_PER_TASK, "1".to_owned()),
        (BALLISTA_CLIENT_GRPC_MAX_MESSAGE_SIZE, MAX_MESSAGE.to_string()),
        (BALLISTA_CLIENT_GRPC_CONNECT_TIMEOUT_SECONDS, CONNECT_SECONDS.to_owned()),
        // Statistics of all files would be read when a job is planned, and nothing here uses them.
        ("datafusion.execution.collect_statistics", "false".to_owned()),
    ];
    let mut config = frosh_sql::fix_split(session_config_with_s3_support());
    for (name, value) in settings {
        config = config.set_str(name, &value);
    }
    config
}

/// A session with S3 and our functions.
pub(crate) fn state(config: SessionConfig) -> Result<SessionState> {
    let mut state = session_state_with_s3_support(config)?;
    for function in frosh_sql::scalar_functions() {
        state.register_udf(function)?;
    }
    for function in frosh_sql::aggregate_functions() {
        state.register_udaf(function)?;
    }
    Ok(state)
}

/// A session that runs in this process, with at most `partitions` partitions.
pub(crate) fn local(partitions: usize) -> Result<SessionContext> {
    let config = frosh_sql::set_partitions(config(), partitions);
    Ok(SessionContext::new_with_state(state(config)?))
}

/// A session that runs its queries on a cluster, as jobs of this name.
pub(crate) async fn remote(
    scheduler: &str,
    partitions: usize,
    job: &str,
) -> Result<SessionContext> {
    let config = frosh_sql::set_partitions(config(), partitions).set_str(BALLISTA_JOB_NAME, job);
    let context = SessionContext::remote_with_state(scheduler, state(config)?).await?;
    // The call before has dropped the functions.
    frosh_sql::register(&context);
    Ok(context)
}
