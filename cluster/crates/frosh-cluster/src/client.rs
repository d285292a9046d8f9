//! What a client knows of a cluster: its executors, and how far a job is. Both come from the scheduler's REST interface.

use crate::gate;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::time::Duration;
use url::Url;

const DEFAULT_PORT: u16 = 50050;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Host and port of `df://host:port`.
pub(crate) fn host_and_port(scheduler: &str) -> Result<(String, u16)> {
    let wrong =
        || format!("{scheduler:?} is not the address of a scheduler: expected df://HOST:PORT");
    let url = Url::parse(scheduler).with_context(wrong)?;
    match (url.scheme(), url.host_str()) {
        ("df", Some(host)) if !host.is_empty() => {
            Ok((host.to_owned(), url.port().unwrap_or(DEFAULT_PORT)))
        }
        _ => bail!(wrong()),
    }
}

/// A scheduler, seen by a client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
    scheduler: String,
}

/// The tasks of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tasks {
    pub(crate) done: usize,
    pub(crate) all: usize,
}

impl Client {
    pub(crate) fn new(scheduler: &str) -> Result<Self> {
        let (host, port) = host_and_port(scheduler)?;
        // The scheduler is a neighbour: a proxy for the world outside would not find it.
        let http = reqwest::Client::builder().timeout(TIMEOUT).no_proxy().build()?;
        Ok(Self { http, base: format!("http://{host}:{port}"), scheduler: scheduler.to_owned() })
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.http.get(format!("{}{path}", self.base)).send().await;
        let answer = answer.and_then(reqwest::Response::error_for_status);
        let answer = answer.with_context(|| {
            format!(
                "no frosh-cluster scheduler answers at {}: is it running, and is the port right?",
                self.scheduler
            )
        })?;
        Ok(answer.json().await?)
    }

    /// Whether the scheduler is there.
    pub(crate) async fn answers(&self) -> bool {
        self.get("/api/executors").await.is_ok()
    }

    /// Checks that there are executors and that all are of this release. Returns the number of their slots.
    pub(crate) async fn check(&self) -> Result<usize> {
        let executors = self.get("/api/executors").await?;
        let executors = executors.as_array().cloned().unwrap_or_default();
        if executors.is_empty() {
            bail!(
                "no executor has joined the scheduler at {}: start some with frosh-cluster executor --scheduler {}",
                self.scheduler,
                self.scheduler
            );
        }
        let mut slots = 0;
        for executor in &executors {
            let text = |name: &str| executor[name].as_str().unwrap_or_default();
            let port = executor["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            if let Err(why) = gate::check(text("id"), text("host"), port.unwrap_or(0)) {
                bail!("{why} (scheduler {})", self.scheduler);
            }
            slots += executor["specification"]["vcores"].as_u64().unwrap_or(1) as usize;
        }
        Ok(slots)
    }

    /// Ends all jobs of this name.
    pub(crate) async fn cancel(&self, job: &str) -> Result<()> {
        let jobs = self.get("/api/jobs").await?;
        let ours = jobs.as_array().into_iter().flatten().filter(|other| other["job_name"] == job);
        for id in ours.filter_map(|job| job["job_id"].as_str()) {
            self.http.patch(format!("{}/api/job/{id}", self.base)).send().await?;
        }
        Ok(())
    }

    /// How far the newest job of this name is; `None` if the scheduler does not know it yet.
    pub(crate) async fn tasks(&self, job: &str) -> Result<Option<Tasks>> {
        let jobs = self.get("/api/jobs").await?;
        let ours = jobs.as_array().and_then(|jobs| {
            let ours = jobs.iter().filter(|other| other["job_name"] == job);
            ours.max_by_key(|job| job["start_time"].as_u64())
        });
        let Some(id) = ours.and_then(|job| job["job_id"].as_str()) else { return Ok(None) };
        let stages = self.get(&format!("/api/job/{id}/stages")).await?;
        let mut tasks = Tasks::default();
        for stage in stages["stages"].as_array().into_iter().flatten() {
            let list = stage["tasks"].as_array().cloned().unwrap_or_default();
            tasks.all += list.len();
            let ended =
                |task: &&Value| task["status"].as_str().is_some_and(|s| s.starts_with("Success"));
            tasks.done += list.iter().filter(ended).count();
        }
        Ok(Some(tasks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_schedulers() {
        assert_eq!(host_and_port("df://a.b:7").unwrap(), ("a.b".into(), 7));
        assert_eq!(host_and_port("df://10.0.0.1").unwrap(), ("10.0.0.1".into(), 50050));
        for wrong in ["a.b:7", "http://a:7", "df://", "df:", ""] {
            let error = host_and_port(wrong).unwrap_err();
            assert!(format!("{error:#}").contains("df://HOST:PORT"), "{wrong}: {error:#}");
        }
    }
}
