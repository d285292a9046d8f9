//! Where queries run: in this process, or on a cluster.

use crate::client::Client;
use crate::progress::Progress;
use crate::session;
use anyhow::{Result, bail};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::prelude::{DataFrame, SessionContext};
use std::future::Future;
use std::time::Duration;

/// How often the scheduler is asked how far a job is.
const POLL: Duration = Duration::from_millis(300);

/// Where queries run.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    /// In this process, on so many threads.
    Local {
        threads: usize,
    },
    Cluster {
        client: Client,
        scheduler: String,
        slots: usize,
        timeout: Option<Duration>,
    },
}

impl Engine {
    /// A cluster. Refuses one without executors, or with executors of another release.
    pub(crate) async fn cluster(scheduler: &str, timeout: Option<Duration>) -> Result<Self> {
        let client = Client::new(scheduler)?;
        let slots = client.check().await?;
        Ok(Self::Cluster { client, scheduler: scheduler.to_owned(), slots, timeout })
    }

    /// Tasks that run at a time.
    pub(crate) fn slots(&self) -> usize {
        match self {
            Self::Local { threads } => *threads,
            Self::Cluster { slots, .. } => *slots,
        }
    }

    /// A session with as many partitions as there are files. On a cluster, its jobs have this name.
    pub(crate) async fn session(&self, partitions: usize, job: &str) -> Result<SessionContext> {
        Ok(match self {
            Self::Local { .. } => session::local(partitions)?,
            Self::Cluster { scheduler, .. } => session::remote(scheduler, partitions, job).await?,
        })
    }

    /// Runs a query and returns its rows. Shows how far the job of this name is, if a progress bar is given.
    pub(crate) async fn collect(
        &self,
        query: DataFrame,
        job: &str,
        progress: Option<&Progress>,
    ) -> Result<Vec<RecordBatch>> {
        self.run(async { Ok(query.collect().await?) }, job, progress).await
    }

    /// Waits for a job of this name, no longer than the time limit.
    pub(crate) async fn run<T>(
        &self,
        work: impl Future<Output = Result<T>>,
        job: &str,
        progress: Option<&Progress>,
    ) -> Result<T> {
        let Self::Cluster { client, timeout, scheduler, .. } = self else { return work.await };
        let watch = async {
            loop {
                tokio::time::sleep(POLL).await;
                if let (Some(progress), Ok(Some(tasks))) = (progress, client.tasks(job).await) {
                    progress.set(tasks.done, tasks.all);
                }
            }
        };
        let limit = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(*timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = work => match result {
                // What the connection says of its end does not say whose end it was.
                Err(error) if !client.answers().await => Err(error.context(format!(
                    "the scheduler at {scheduler} does not answer any more, and its running jobs are lost: run the command \
                     again when it is back"
                ))),
                result => result,
            },
            () = watch => unreachable!("it watches for ever"),
            // Without its client, a job would go on to its end.
            () = limit => {
                let _ = client.cancel(job).await;
                bail!(
                    "the job took longer than --timeout {} seconds on {scheduler}, and is cancelled",
                    timeout.unwrap_or_default().as_secs()
                )
            }
            _ = tokio::signal::ctrl_c() => {
                let _ = client.cancel(job).await;
                bail!("interrupted: the job on {scheduler} is cancelled")
            }
        }
    }
}
