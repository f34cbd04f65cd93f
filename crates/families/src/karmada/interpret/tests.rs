use super::*;

fn shown(template: &Value) -> String {
    match wants(template, Reserve::Initial) {
        Err(why) => format!("error: {why}"),
        Ok(Wants { replicas, requirements, components }) => {
            let list = |one: &Option<Requirements>| {
                let list = one.iter().flat_map(|one| &one.resource_request);
                list.map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect::<Vec<_>>().join(" ")
            };
            let parts = components
                .iter()
                .map(|one| format!("{} {}x {}", one.name, one.replicas, list(&one.replica_requirements)));
            match components.is_empty() {
                true => format!("{replicas}x {}", list(&requirements)),
                false => parts.collect::<Vec<_>>().join("; "),
            }
        }
    }
}

fn workload(kind: &str, spec: Value) -> Value {
    let group = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({"apiVersion": group, "kind": kind, "metadata": {"name": "w"}, "spec": spec})
}

fn pod_spec() -> Value {
    json!({"spec": {
        "priorityClassName": "gold",
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
        "containers": [
            {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            {"name": "b", "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}}},
        ],
        "overhead": {"memory": "64Mi"},
    }})
}

#[test]
fn built_in_workloads() {
    let expected = "3x cpu=2 memory=1088Mi nvidia.com/gpu=1";
    for kind in ["Deployment", "StatefulSet", "ReplicaSet"] {
        assert_eq!(shown(&workload(kind, json!({"replicas": 3, "template": pod_spec()}))), expected, "{kind}");
    }
    let one = shown(&workload("Deployment", json!({"template": pod_spec()})));
    assert_eq!(one, expected.replace("3x", "1x"));
    assert_eq!(shown(&workload("Job", json!({"parallelism": 3, "completions": 9, "template": pod_spec()}))), expected);
    let few = workload("Job", json!({"parallelism": 30, "completions": 3, "template": pod_spec()}));
    assert_eq!(shown(&few), expected);
    assert_eq!(shown(&workload("Job", json!({"template": {}}))), "1x ");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {}});
    assert_eq!(shown(&map), "0x ");
    let class = wants(&workload("Deployment", json!({"template": pod_spec()})), Reserve::Initial).unwrap();
    assert_eq!(class.requirements.unwrap().priority_class_name, "gold");
}

#[test]
fn numbers_of_tricksters_are_errors() {
    for replicas in [json!(-1), json!(1_u64 << 40), json!("many"), json!(1.5), json!([])] {
        let said = shown(&workload("Deployment", json!({"replicas": replicas, "template": pod_spec()})));
        assert!(said.starts_with("error: spec.replicas is "), "{said}");
    }
    let mut broken = pod_spec();
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("much");
    assert!(shown(&workload("Deployment", json!({"template": broken}))).starts_with("error: "));
}

fn flink(spec: Value) -> Value {
    json!({"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "metadata": {"name": "f"}, "spec": spec})
}

#[test]
fn flink_counts_memory_its_own_way() {
    let job = flink(json!({
        "flinkConfiguration": {"taskmanager.numberOfTaskSlots": "2"},
        "jobManager": {"resource": {"cpu": 1, "memory": "2048m"}},
        "taskManager": {"resource": {"cpu": 0.5, "memory": "4g"}},
        "job": {"parallelism": 5},
    }));
    assert_eq!(shown(&job), "jobmanager 1x cpu=1 memory=2Gi; taskmanager 3x cpu=500m memory=4Gi");
    let fixed = flink(json!({
        "jobManager": {"replicas": 2, "resource": {"cpu": "1", "memory": "1Gi"}},
        "taskManager": {"replicas": 4, "resource": {"cpu": 2}},
        "podTemplate": {"spec": {"priorityClassName": "gold", "containers": [
            {"name": "flink-main-container", "resources": {"requests": {"cpu": "9"}}},
            {"name": "logs", "resources": {"requests": {"cpu": "100m"}}},
        ]}},
    }));
    assert_eq!(shown(&fixed), "jobmanager 2x cpu=1100m memory=1Gi; taskmanager 4x cpu=2100m");
    for (spec, expected) in [
        (json!({"jobManager": {"resource": {"memory": "2048x"}}}), "spec.jobManager.resource.memory is \"2048x\""),
        (json!({"flinkConfiguration": {"taskmanager.numberOfTaskSlots": "0"}}), "has a slot at least"),
        (json!({"job": {"parallelism": -2}}), "spec.job.parallelism is -2"),
        (json!({"taskManager": {"resource": {"cpu": -1}}}), "not below zero"),
    ] {
        let said = shown(&flink(spec));
        assert!(said.starts_with("error: ") && said.contains(expected), "{said}");
    }
}

fn spark(spec: Value) -> Value {
    json!({"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {}, "spec": spec})
}

#[test]
fn spark_adds_its_overhead() {
    let plain = spark(json!({"type": "Scala", "executor": {"instances": 2, "cores": 2, "memory": "8g"}}));
    assert_eq!(shown(&plain), "driver 1x cpu=1 memory=1408Mi; executor 2x cpu=2 memory=9011Mi");
    let python = spark(json!({
        "type": "Python",
        "driver": {"coreRequest": "500m", "memory": "512m", "memoryOverhead": "100m"},
        "executor": {"memory": "2g", "gpu": {"name": "nvidia.com/gpu", "quantity": 1}},
    }));
    assert_eq!(shown(&python), "driver 1x cpu=500m memory=612Mi; executor 1x cpu=1 memory=2867Mi nvidia.com/gpu=1");
    let elastic = spark(json!({
        "type": "Java",
        "executor": {"instances": 2},
        "dynamicAllocation": {"enabled": true, "initialExecutors": 4, "minExecutors": 3, "maxExecutors": 9},
    }));
    let executors = |reserve| wants(&elastic, reserve).unwrap().components[1].replicas;
    assert_eq!((executors(Reserve::Initial), executors(Reserve::Min), executors(Reserve::Max)), (4, 3, 9));
    for spec in [
        json!({"executor": {"memory": "1.5g"}}),
        json!({"memoryOverheadFactor": "half"}),
        json!({"memoryOverheadFactor": "-1"}),
        json!({"executor": {"gpu": {"quantity": 1}}}),
        json!({"driver": {"memory": "18014398509481984k"}}),
    ] {
        assert!(shown(&spark(spec.clone())).starts_with("error: "), "{spec}");
    }
}

#[test]
fn a_part_of_a_workload_is_written_for_each_cluster() {
    let targets =
        [("m1", 2), ("m2", 1)].map(|(name, replicas)| Target { name: name.into(), replicas, components: vec![] });
    let mut deployment = workload("Deployment", json!({"replicas": 3, "template": {}}));
    revise(&mut deployment, &targets[1], &targets);
    assert_eq!(deployment["spec"]["replicas"], json!(1));
    let job = workload("Job", json!({"parallelism": 3, "completions": 10, "template": {}}));
    let parts: Vec<(Value, Value)> = targets
        .iter()
        .map(|target| {
            let mut part = job.clone();
            revise(&mut part, target, &targets);
            (part["spec"]["parallelism"].clone(), part["spec"]["completions"].clone())
        })
        .collect();
    assert_eq!(parts, [(json!(2), json!(7)), (json!(1), json!(3))]);
    let mut other = json!({"apiVersion": "v1", "kind": "ConfigMap", "spec": 7});
    revise(&mut other, &targets[0], &targets);
    assert_eq!(other["spec"], json!(7));
}

#[test]
fn health_is_read_from_a_status() {
    let mut job = flink(json!({}));
    assert_eq!(health(&job), Health::Unknown);
    job["status"] = json!({"lifecycleState": "STABLE", "jobStatus": {"state": "RUNNING"}});
    assert_eq!(health(&job), Health::Healthy);
    job["status"] = json!({"lifecycleState": "FAILED"});
    assert_eq!(health(&job), Health::Unhealthy);
    let mut deployment = workload("Deployment", json!({"replicas": 2}));
    deployment["status"] = json!({"availableReplicas": 1});
    assert_eq!(health(&deployment), Health::Unhealthy);
    deployment["status"] = json!({"availableReplicas": 2});
    assert_eq!(health(&deployment), Health::Healthy);
    assert_eq!(health(&json!({"apiVersion": "v1", "kind": "ConfigMap"})), Health::Healthy);
}

#[test]
fn statuses_are_added_up() {
    let deployment = workload("Deployment", json!({}));
    let (one, other) = (json!({"replicas": 2, "readyReplicas": 1}), json!({"replicas": 3, "note": "x"}));
    let told = [("m1", &one), ("m2", &other)];
    assert_eq!(aggregate(&deployment, &told), Some(json!({"replicas": 5, "readyReplicas": 1})));
    assert_eq!(aggregate(&flink(json!({})), &told[..1]), Some(one.clone()));
    assert_eq!(aggregate(&flink(json!({})), &told), None);
}

#[test]
fn what_the_first_server_gave_stays_with_it() {
    let service = |ip: &str| json!({"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": []}});
    let (mut given, mut headless) = (service("10.0.0.1"), service("None"));
    prune(&mut given);
    prune(&mut headless);
    assert_eq!((&given["spec"], &headless), (&json!({"ports": []}), &service("None")));
    let labels = json!({"app": "j", "controller-uid": "1", "batch.kubernetes.io/controller-uid": "1", "job-name": "j"});
    let mut job = workload("Job", json!({"selector": {}, "template": {"metadata": {"labels": labels}}}));
    prune(&mut job);
    assert_eq!(job["spec"], json!({"template": {"metadata": {"labels": {"app": "j"}}}}));
}

#[test]
fn what_runs_pods_is_counted_by_whatever_kind() {
    let pods = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}});
    let mut controller = json!({
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "w"},
        "spec": {"replicas": 3, "template": pods},
    });
    let asked = wants(&controller, Reserve::Initial).unwrap();
    assert_eq!((asked.replicas, asked.components.len()), (3, 0));
    assert_eq!(asked.requirements.unwrap().resource_request["cpu"], "2");
    revise(&mut controller, &Target { name: "m1".into(), replicas: 1, components: Vec::new() }, &[]);
    assert_eq!(controller["spec"]["replicas"], 1);
    let job = |parallelism: u32| json!({"parallelism": parallelism, "completions": 5, "template": pods});
    let cron = |parallelism: u32| json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job(parallelism)}}});
    for (parallelism, at_once) in [(4, 4), (9, 5), (0, 0)] {
        let asked = wants(&cron(parallelism), Reserve::Initial).unwrap();
        assert_eq!((asked.replicas, asked.requirements), (0, None), "it is not divided");
        assert_eq!((&*asked.components[0].name, asked.components[0].replicas), ("job", at_once));
        let request = asked.components[0].replica_requirements.as_ref().unwrap();
        assert_eq!(request.resource_request["cpu"], "2");
    }
}
