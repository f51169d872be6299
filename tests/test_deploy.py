"""The files of deploy/ are valid for their schedulers, and run under those that are installed."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from fast_compilation import FAST_COMPILATION
from subprocesses import user_environment
from train_helpers import ENVIRONMENT

from train.config import load_config

REPOSITORY = Path(__file__).parent.parent
DEPLOY = REPOSITORY / "deploy"
RUN = [sys.executable, "-m", "train", "--workers", "2", "--epochs", "1"]
# The fields of a JobSet (jobset.x-k8s.io/v1alpha2) that may be used here.
JOB_SET = {
    "network": {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"},
    "failurePolicy": {"maxRestarts", "rules", "restartStrategy"},
}


def job_set():
    return yaml.safe_load((DEPLOY / "jobset.yaml").read_text(encoding="utf-8"))


def test_jobset_has_the_fields_of_its_kind_and_valid_jobs():
    found = job_set()
    assert (found["apiVersion"], found["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert found["spec"].keys() == {*JOB_SET, "replicatedJobs"}
    for field, known in JOB_SET.items():
        assert found["spec"][field].keys() <= known
    for job in found["spec"]["replicatedJobs"]:
        assert job.keys() == {"name", "replicas", "template"}
        whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}}
        kubernetes_validate.validate(whole | job["template"], "1.30", strict=True)


def test_jobset_starts_the_training_program_with_options_that_it_knows():
    found = job_set()
    (job,) = found["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["command"][:3] == ["python", "-m", "train"]
    options = [text.replace("$(JOB_COMPLETION_INDEX)", "3") for text in container["args"]]
    config = load_config([str(REPOSITORY / container["command"][3]), *options])
    assert config.num_processes == spec["parallelism"] == spec["completions"]
    # The name of the first pod: SET-JOB-REPLICA-INDEX.SET.
    name = found["metadata"]["name"]
    assert config.coordinator == f"{name}-{job['name']}-0-0.{name}:1234"


def test_jobset_does_not_repeat_bad_input_or_divergence():
    spec = job_set()["spec"]
    (job,) = spec["replicatedJobs"]
    (rule,) = job["template"]["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [1, 2]
    (rule,) = spec["failurePolicy"]["rules"]
    assert rule["action"] == "FailJobSet"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]


def test_sbatch_script_is_valid_shell():
    subprocess.run(["bash", "-n", str(DEPLOY / "train.sbatch")], check=True)


def summary(command, environment=None):
    """The summary that a run under a scheduler prints, with its processes found without options."""
    done = subprocess.run(
        [*command, *RUN],
        cwd=REPOSITORY,
        env=user_environment()
        | ENVIRONMENT
        | {"XLA_FLAGS": FAST_COMPILATION}
        | (environment or {}),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "  workers     2 in 2 processes\n" in done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.skipif(not shutil.which("mpirun"), reason="needs Open MPI (Debian: openmpi-bin)")
def test_processes_find_each_other_under_open_mpi():
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    assert summary(command)["workers"] == 2


SLURM = ("slurmctld", "slurmd", "srun", "munged")


@pytest.fixture
def slurm(tmp_path):
    """A cluster of this machine alone; the path of its settings."""
    absent = [
        name
        for name in SLURM
        if not shutil.which(name, path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    ]
    if absent or os.geteuid() != 0:
        pytest.skip(f"needs root and Slurm (Debian: slurmctld slurmd munge); absent: {absent}")
    host = os.uname().nodename.split(".")[0]
    settings = tmp_path / "slurm.conf"
    lines = {
        "ClusterName": "test",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "StateSaveLocation": tmp_path / "state",
        "SlurmdSpoolDir": tmp_path / "spool",
        "SlurmctldPidFile": tmp_path / "slurmctld.pid",
        "SlurmdPidFile": tmp_path / "slurmd.pid",
        "SlurmctldLogFile": tmp_path / "slurmctld.log",
        "SlurmdLogFile": tmp_path / "slurmd.log",
        "SlurmctldPort": 26817,
        "SlurmdPort": 26818,
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "ReturnToService": 2,
        "NodeName": f"{host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()}",
        "PartitionName": "all Nodes=ALL Default=YES State=UP",
    }
    settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    for folder in ("state", "spool"):
        (tmp_path / folder).mkdir()
    environment = os.environ | {"SLURM_CONF": str(settings)}
    if subprocess.run(["pgrep", "munged"], capture_output=True).returncode:
        Path("/run/munge").mkdir(exist_ok=True)
        shutil.chown("/run/munge", "munge")
        subprocess.run(["runuser", "-u", "munge", "--", "/usr/sbin/munged", "--force"], check=True)
    daemons = [
        subprocess.Popen([f"/usr/sbin/{name}", "-D"], env=environment, stderr=subprocess.DEVNULL)
        for name in ("slurmctld", "slurmd")
    ]
    try:
        for _ in range(60):
            state = subprocess.run(
                ["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True
            )
            if state.stdout.strip() == b"idle":
                break
            time.sleep(0.5)
        yield settings
    finally:
        for daemon in daemons:
            daemon.terminate()
            daemon.wait()


def test_processes_find_each_other_under_slurm(slurm):
    assert summary(["srun", "-n", "2"], {"SLURM_CONF": str(slurm)})["workers"] == 2
