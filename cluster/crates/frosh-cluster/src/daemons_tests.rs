//! Executors that are not ours.

use super::Scheduler;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What the scheduler answers to an executor with this id.
async fn refusal(scheduler_port: u16, id: &str) -> String {
    let config = ExecutorProcessConfig {
        executor_id: id.to_owned(),
        external_host: Some("127.0.0.1".into()),
        port: free_port(),
        grpc_port: free_port(),
        scheduler_host: "127.0.0.1".into(),
        scheduler_port,
        scheduler_connect_timeout_seconds: 20,
        ..ExecutorProcessConfig::default()
    };
    let ended =
        tokio::time::timeout(Duration::from_secs(30), start_executor_process(Arc::new(config)));
    let ended = ended.await.expect("the executor ends, since it is refused");
    ended.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn executors_of_another_release_or_without_our_functions_are_refused() {
    let port = free_port();
    let scheduler = Scheduler { bind: ([127, 0, 0, 1], port).into(), executor_timeout: 30 };
    let scheduler = tokio::spawn(async move { scheduler.run().await });
    // As Ballista's own executor names itself, and as an older frosh-cluster.
    let said = refusal(port, "0193b1a2-0000-7000-8000-000000000000").await;
    assert!(said.contains("has no frosh functions") && said.contains("same release"), "{said}");
    let said = refusal(port, "frosh-0.0.9-0193b1a2").await;
    assert!(said.contains("is of frosh-cluster 0.0.9"), "{said}");
    let none = crate::client::Client::new(&format!("df://127.0.0.1:{port}")).unwrap().check().await;
    let none = none.unwrap_err().to_string();
    assert!(none.contains("no executor has joined"), "{none}");
    scheduler.abort();
}
