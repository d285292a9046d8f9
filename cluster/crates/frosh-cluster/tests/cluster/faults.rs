//! Machines that fail: the job ends with the same bytes, or with a clear error in bounded time.

use crate::data::{self, fails, ok};
use crate::nodes::{Cluster, needs_namespaces, partials, wait};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Settings with which a partial sketch takes about a second: a large sketch of every row.
const SLOW: [&str; 6] = ["--method", "osh", "--sketch-rows", "512", "--bits", "32"];
const ROWS: [usize; 9] = [16_000, 15_000, 16_500, 14_000, 16_000, 15_500, 16_000, 16_000, 15_000];
const DIM: usize = 256;
/// Seconds after which a job must have ended, whatever happened. An executor is given up after 15 seconds without a
/// sign of life, which is looked for every 5 seconds.
const LIMIT: u64 = 150;

struct Job {
    folder: tempfile::TempDir,
    vectors: PathBuf,
    /// The model that the job must end with.
    model: Vec<u8>,
}

impl Job {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let vectors = folder.path().join("vectors");
        std::fs::create_dir(&vectors).unwrap();
        data::files(&vectors, &ROWS, DIM);
        let model = folder.path().join("here.frosh");
        let mut train = crate::local::local("train");
        ok(train.arg(&vectors).args(SLOW).args(["-q", "-o"]).arg(&model));
        let model = std::fs::read(model).unwrap();
        Self { folder, vectors, model }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, cluster: &Cluster, output: &Path) -> Command {
        self.command_within(cluster, output, LIMIT)
    }

    /// The job with a time limit in seconds.
    fn command_within(&self, cluster: &Cluster, output: &Path, limit: u64) -> Command {
        let mut train = cluster.client("train");
        train.arg(&self.vectors).args(SLOW);
        train.args(["-q", "--force", "--timeout", &limit.to_string(), "-o"]).arg(output);
        train.stdout(Stdio::piped()).stderr(Stdio::piped());
        train
    }

    /// Starts the job, and returns when some partial sketches are done and some are not.
    fn start(&self, cluster: &Cluster, output: &Path) -> Child {
        let before: usize = cluster.partials().iter().sum();
        let mut child = self.command(cluster, output).spawn().unwrap();
        wait("the first partial sketches", 60, || {
            cluster.partials().iter().sum::<usize>() >= before + 2
        });
        assert!(child.try_wait().unwrap().is_none(), "the job ended before the fault");
        child
    }

    fn check(&self, child: Child, output: &Path, since: Instant) {
        let end = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&end.stderr);
        assert!(end.status.success(), "{said}");
        assert!(std::fs::read(output).unwrap() == self.model, "the model is another");
        println!("ended {:.1} s after the fault", since.elapsed().as_secs_f64());
    }
}

#[test]
fn an_executor_killed_in_mid_job_does_not_change_the_model() {
    let job = Job::new();
    let mut cluster = Cluster::start(job.path(), 3);
    let output = job.path().join("killed.frosh");
    let child = job.start(&cluster, &output);
    let since = Instant::now();
    // One that has finished a partial sketch, so that this one is lost too.
    let victim = cluster.partials().iter().position(|count| *count > 0).unwrap();
    cluster.executors[victim].kill();
    job.check(child, &output, since);
    assert!(since.elapsed() < Duration::from_secs(LIMIT));
    // The cluster goes on with two executors, and a job that takes too long is cancelled.
    let output = job.path().join("two.frosh");
    let said = fails(&mut job.command_within(&cluster, &output, 1), 1);
    assert!(said.contains("longer than --timeout 1 seconds") && !output.exists(), "{said}");
    wait("the job to be cancelled", 10, || cluster.scheduler.log().contains("Job cancelled"));
    ok(&mut job.command(&cluster, &output));
    assert!(std::fs::read(&output).unwrap() == job.model);
}

#[test]
fn an_executor_cut_off_and_brought_back_does_not_change_the_model() {
    let job = Job::new();
    let mut cluster = Cluster::start(job.path(), 3);
    if !needs_namespaces(&cluster) {
        return;
    }
    let output = job.path().join("cut.frosh");
    let child = job.start(&cluster, &output);
    let since = Instant::now();
    let victim = cluster.partials().iter().position(|count| *count > 0).unwrap();
    let set_link =
        |cluster: &Cluster, up| cluster.network.as_ref().unwrap().set_link(victim + 1, up);
    set_link(&cluster, false);
    job.check(child, &output, since);
    assert!(since.elapsed() < Duration::from_secs(LIMIT));
    // Brought back: it joins again, or has ended as one that was given up, and a supervisor starts it again.
    set_link(&cluster, true);
    std::thread::sleep(Duration::from_secs(12));
    if cluster.executors[victim].child.try_wait().unwrap().is_some() {
        println!("the executor that was cut off has ended");
        let joined = cluster.scheduler.log().matches("Received register executor request").count();
        cluster.executors[victim] = cluster.spawn_executor(victim + 1, 1);
        cluster.wait_for_executors(joined + 1);
    }
    let before = partials(&cluster.executors[victim]);
    let output = job.path().join("back.frosh");
    ok(&mut job.command(&cluster, &output));
    assert!(std::fs::read(&output).unwrap() == job.model);
    assert!(partials(&cluster.executors[victim]) > before, "the executor works again");
    // A link that is down for a moment only.
    let output = job.path().join("moment.frosh");
    let child = job.start(&cluster, &output);
    let since = Instant::now();
    set_link(&cluster, false);
    std::thread::sleep(Duration::from_secs(3));
    set_link(&cluster, true);
    job.check(child, &output, since);
    assert!(since.elapsed() < Duration::from_secs(LIMIT));
}

#[test]
fn a_scheduler_restarted_between_jobs_goes_on_and_in_mid_job_is_an_error() {
    let job = Job::new();
    let mut cluster = Cluster::start(job.path(), 2);
    let output = job.path().join("model.frosh");
    ok(&mut job.command(&cluster, &output));
    assert!(std::fs::read(&output).unwrap() == job.model);
    cluster.restart_scheduler();
    // Executors join the new one with their next sign of life.
    wait("the executors to join again", 60, || {
        cluster.scheduler.log().matches("Fail to get executor metadata").count() >= 2
    });
    std::thread::sleep(Duration::from_secs(1));
    let output = job.path().join("again.frosh");
    ok(&mut job.command(&cluster, &output));
    assert!(std::fs::read(&output).unwrap() == job.model);
    // In mid-job: the job is lost, and its client says so soon.
    let output = job.path().join("lost.frosh");
    let mut child = job.start(&cluster, &output);
    let since = Instant::now();
    cluster.scheduler.kill();
    wait("the client to end", 60, || child.try_wait().unwrap().is_some());
    let end = child.wait_with_output().unwrap();
    assert_eq!(end.status.code(), Some(1));
    let said = String::from_utf8_lossy(&end.stderr);
    assert!(said.starts_with("frosh-cluster: the scheduler at df://"), "{said}");
    assert!(said.contains("does not answer any more"), "{said}");
    assert!(!output.exists(), "no model is written");
    println!("the client ended {:.1} s after the scheduler: {said}", since.elapsed().as_secs_f64());
    let said = fails(&mut job.command(&cluster, &output), 1);
    assert!(said.contains("no frosh-cluster scheduler answers"), "{said}");
}

#[test]
fn a_job_whose_executors_are_all_lost_ends_with_an_error() {
    let job = Job::new();
    let mut cluster = Cluster::start(job.path(), 2);
    let output = job.path().join("lost.frosh");
    let mut child = job.start(&cluster, &output);
    let since = Instant::now();
    cluster.executors.iter_mut().for_each(|executor| executor.kill());
    wait("the client to end", LIMIT + 10, || child.try_wait().unwrap().is_some());
    let end = child.wait_with_output().unwrap();
    assert_eq!(end.status.code(), Some(1));
    let said = String::from_utf8_lossy(&end.stderr);
    assert!(!output.exists() && said.starts_with("frosh-cluster: "), "{said}");
    println!("the client ended {:.1} s after its executors: {said}", since.elapsed().as_secs_f64());
}
