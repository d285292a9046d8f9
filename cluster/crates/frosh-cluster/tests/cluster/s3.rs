//! An S3-compatible server on loopback: moto, from PyPI.

use crate::data::{self, ok, skipped};
use crate::nodes::{Cluster, Node, wait};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SECRET: &str = "frosh-test-secret-9d2c5f7a";
const KEY: &str = "AKIAFROSHTESTKEY0001";

/// A Python with moto, in a virtual environment that later runs use again; `None` if there can be none.
fn python_with_moto() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto-5.2.5");
    let python = folder.join("bin/python");
    let works = |python: &Path| {
        Command::new(python)
            .args(["-c", "import moto.server"])
            .output()
            .is_ok_and(|o| o.status.success())
    };
    if works(&python) {
        return Some(python);
    }
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder).output();
    if !made.is_ok_and(|output| output.status.success()) {
        skipped("there is no python3 with venv");
        return None;
    }
    let install = Command::new(&python)
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "moto[s3,server]==5.2.5",
        ])
        .output();
    if !install.as_ref().is_ok_and(|output| output.status.success()) || !works(&python) {
        skipped("moto cannot be installed from PyPI");
        return None;
    }
    Some(python)
}

/// Runs a few lines of Python with boto3, which moto brings along.
fn boto(python: &Path, endpoint: &str, lines: &str) -> String {
    let program = format!(
        "import boto3, sys\ns3 = boto3.client('s3', endpoint_url='{endpoint}', region_name='us-east-1', \
         aws_access_key_id='{KEY}', aws_secret_access_key='{SECRET}')\n{lines}"
    );
    ok(Command::new(python).args(["-c", &program]))
}

#[test]
fn vectors_codes_and_models_in_a_bucket() {
    let Some(python) = python_with_moto() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let log = path.join("moto.log");
    let file = File::create(&log).unwrap();
    let mut server = Command::new(&python);
    server.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
    server.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let _server = Node { child: server.spawn().unwrap(), log };
    wait("the S3 server", 60, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let endpoint = format!("http://127.0.0.1:{port}");

    let vectors = path.join("vectors");
    std::fs::create_dir(&vectors).unwrap();
    let files = data::files(&vectors, &[900, 1500, 700, 1100], 32);
    boto(&python, &endpoint, "s3.create_bucket(Bucket='frosh-test')");
    for (i, file) in files.iter().enumerate() {
        let line =
            format!("s3.upload_file('{}', 'frosh-test', 'in/part-{i}.parquet')", file.display());
        boto(&python, &endpoint, &line);
    }
    // Keys come from the environment. All that a process logs is looked at, also what it logs in detail.
    let environment = [
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("RUST_LOG", "debug"),
    ];
    let environment: Vec<(String, String)> =
        environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let cluster = Cluster::start_with(path, 2, false, environment);
    let mut said = String::new();
    let mut run = |command: &mut Command| {
        let output = data::output(command);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        said += &stderr;
        let stdout = String::from_utf8(output.stdout).unwrap();
        said += &stdout;
        stdout
    };
    let model = "s3://frosh-test/models/model.frosh";
    let mut train = cluster.client("train");
    run(train.args([
        "s3://frosh-test/in/*.parquet",
        "--bits",
        "16",
        "--json",
        "--timeout",
        "120",
        "-o",
        model,
    ]));
    let here = path.join("here.frosh");
    ok(crate::local::local("train").arg(&vectors).args(["--bits", "16", "-q", "-o"]).arg(&here));
    let copy = path.join("copy.frosh");
    let line =
        format!("s3.download_file('frosh-test', 'models/model.frosh', '{}')", copy.display());
    boto(&python, &endpoint, &line);
    assert!(std::fs::read(&copy).unwrap() == std::fs::read(&here).unwrap());

    let mut encode = cluster.client("encode");
    run(encode.args([
        model,
        "s3://frosh-test/in/",
        "--timeout",
        "120",
        "-o",
        "s3://frosh-test/codes/",
    ]));
    let mut again = cluster.client("encode");
    let again =
        data::fails(again.args([model, "s3://frosh-test/in/", "-o", "s3://frosh-test/codes/"]), 1);
    assert!(again.contains("is there already"), "{again}");
    let codes = path.join("codes");
    ok(crate::local::local("encode").arg(&here).arg(&vectors).args(["-q", "-o"]).arg(&codes));
    for i in 0..files.len() {
        let copy = path.join("codes.parquet");
        let line = format!(
            "s3.download_file('frosh-test', 'codes/part-{i}.parquet', '{}')",
            copy.display()
        );
        boto(&python, &endpoint, &line);
        assert!(data::codes(&copy) == data::codes(&codes.join(format!("part-{i}.parquet"))), "{i}");
    }
    let count = "SELECT count(*) AS n FROM t";
    let counted =
        run(cluster.client("sql").args(["--json", "--table", "t=s3://frosh-test/codes/", count]));
    assert_eq!(counted.trim(), r#"[{"n":4200}]"#);
    // The same without a cluster.
    let mut train = crate::local::local("train");
    train.envs([
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "us-east-1"),
    ]);
    train.envs([("AWS_ENDPOINT", &*endpoint), ("AWS_ALLOW_HTTP", "true")]);
    ok(train
        .args(["s3://frosh-test/in/", "--bits", "16", "-q", "-o"])
        .arg(path.join("local.frosh")));
    assert!(std::fs::read(path.join("local.frosh")).unwrap() == std::fs::read(&here).unwrap());

    for text in
        [said, cluster.scheduler.log(), cluster.executors[0].log(), cluster.executors[1].log()]
    {
        assert!(!text.contains(SECRET), "the secret key is in a log");
    }
    assert!(cluster.executors[0].log().len() > 1000, "the logs are there to be looked at");
}
