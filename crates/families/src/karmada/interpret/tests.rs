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

/// Claims that a StatefulSet, or a pod, makes for itself are asked for by its template, one for each pod.
#[test]
fn claims_that_come_with_pods_are_counted() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {}});
    let ephemeral = json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
    let mut pod = json!({"spec": {"containers": [], "volumes": [{"name": "e", "emptyDir": {}}, ephemeral]}});
    let set = workload("StatefulSet", json!({"replicas": 4, "volumeClaimTemplates": [claim, claim], "template": pod}));
    assert_eq!(shown(&set), "4x persistentvolumeclaims=3");
    assert_eq!(shown(&workload("Deployment", json!({"template": pod}))), "1x persistentvolumeclaims=1");
    pod["spec"]["volumes"] = json!([]);
    assert_eq!(
        shown(&workload("StatefulSet", json!({"volumeClaimTemplates": [claim], "template": pod}))),
        "1x persistentvolumeclaims=1"
    );
    assert_eq!(shown(&workload("Deployment", json!({"volumeClaimTemplates": [claim], "template": pod}))), "1x ");
}

#[test]
fn what_ran_to_its_end_is_known_by_its_status() {
    let with = |kind: &str, status: Value| {
        let group = match kind {
            "Job" => "batch/v1",
            "SparkApplication" => "sparkoperator.k8s.io/v1beta2",
            _ => "v1",
        };
        is_finished(&json!({"apiVersion": group, "kind": kind, "status": status}))
    };
    let condition = |kind: &str, is: &str| json!({"conditions": [{"type": kind, "status": is}]});
    assert!(with("Job", condition("Complete", "True")) && with("Job", condition("Failed", "True")));
    assert!(!with("Job", condition("Complete", "False")) && !with("Job", condition("Suspended", "True")));
    assert!(with("Pod", json!({"phase": "Succeeded"})) && !with("Pod", json!({"phase": "Running"})));
    let state = |state: &str| json!({"applicationState": {"state": state}});
    assert!(with("SparkApplication", state("COMPLETED")) && !with("SparkApplication", state("SUBMISSION_FAILED")));
    assert!(!with("ConfigMap", condition("Complete", "True")));
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

#[test]
fn job_managers_that_stand_by_are_counted() {
    let conf = json!({"kubernetes.jobmanager.replicas": "3"});
    let managers = |spec: Value| wants(&flink(spec), Reserve::Initial).unwrap().components[0].replicas;
    assert_eq!(managers(json!({"flinkConfiguration": conf})), 3);
    assert_eq!(
        managers(json!({"flinkConfiguration": conf, "jobManager": {"replicas": 2}})),
        2,
        "the field comes first"
    );
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
    assert_eq!(shown(&fixed), "jobmanager 2x cpu=1100m memory=1Gi; taskmanager 4x cpu=2100m memory=1728Mi");
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

/// Settings by which Flink goes before it goes by what the operator makes of fields.
#[test]
fn what_settings_of_flink_say_beside_its_fields_counts_where_it_is_more() {
    let workers = |conf: Value, more: Value| {
        let mut spec = json!({
            "flinkConfiguration": conf, "taskManager": {"resource": {"cpu": 0.5, "memory": "1g"}}, "job": {"parallelism": 2},
        });
        more.as_object().unwrap().iter().for_each(|(field, value)| spec[field] = value.clone());
        let said = shown(&flink(spec));
        said.split_once("; taskmanager ").map_or(said.clone(), |(_, workers)| workers.replace(" memory=1Gi", ""))
    };
    let overrides = "pipeline.jobvertex-parallelism-overrides";
    for (conf, expected) in [
        (json!({"taskmanager.cpu.cores": "64"}), "2x cpu=64"),
        (json!({"taskmanager": {"cpu": {"cores": 64}}}), "2x cpu=64"),
        (json!({"taskmanager.cpu.cores": "0.1"}), "2x cpu=500m"),
        (json!({overrides: "a:9,b:3"}), "9x cpu=500m"),
        (json!({overrides: "{a: 9, b: 3}", "taskmanager.numberOfTaskSlots": "2"}), "5x cpu=500m"),
        (json!({overrides: {"a": 1, "b": 7}}), "7x cpu=500m"),
        (json!({overrides: "a:1"}), "2x cpu=500m"),
    ] {
        assert_eq!(workers(conf.clone(), json!({})), expected, "{conf}");
    }
    let bare = json!({"taskManager": {"resource": {"memory": "1g"}}});
    assert_eq!(
        workers(json!({"taskmanager.cpu.cores": "3", "kubernetes.taskmanager.cpu": "2"}), bare.clone()),
        "2x cpu=3"
    );
    assert_eq!(workers(json!({"kubernetes.taskmanager.cpu": "-1.0"}), bare), "2x cpu=1");
    for conf in [json!({"taskmanager.cpu.cores": "lots"}), json!({overrides: "a:b"}), json!({overrides: "a"})] {
        let said = workers(conf.clone(), json!({}));
        assert!(said.starts_with("error: spec.flinkConfiguration["), "{conf}: {said}");
    }
}

/// A pod template in which everything is said that a pod is counted by.
fn busy(main: &str) -> Value {
    json!({"spec": {
        "overhead": {"cpu": "100m"},
        "containers": [
            {"name": main, "resources": {"requests": {"cpu": "9"}, "limits": {"example.com/fpga": "1"}}},
            {"name": "logs", "resources": {"limits": {"cpu": "200m"}}},
        ],
        "initContainers": [
            {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
            {"name": "fetch", "resources": {"requests": {"memory": "9Gi"}}},
        ],
    }})
}

#[test]
fn whatever_comes_into_a_pod_counts_whoever_makes_it() {
    let resource = json!({"cpu": 1, "memory": "1g"});
    let job = flink(json!({
        "podTemplate": busy("flink-main-container"),
        "jobManager": {"resource": resource}, "taskManager": {"resource": resource},
    }));
    let pod = "cpu=1800m example.com/fpga=1 memory=9Gi";
    assert_eq!(shown(&job), format!("jobmanager 1x {pod}; taskmanager 1x {pod}"));
    let part = |main: &str| json!({"memory": "640m", "template": busy(main)});
    let application = spark(json!({
        "type": "Java", "driver": part("spark-kubernetes-driver"), "executor": part("spark-kubernetes-executor"),
    }));
    assert_eq!(shown(&application), format!("driver 1x {pod}; executor 1x {pod}"));
    let own = json!([{"name": "own", "resources": {"requests": {"cpu": "3", "memory": "4Gi"}}}]);
    let more = spark(json!({
        "type": "Java",
        "driver": {"memory": "640m", "sidecars": own}, "executor": {"memory": "640m", "initContainers": own},
    }));
    assert_eq!(shown(&more), "driver 1x cpu=4 memory=5Gi; executor 1x cpu=3 memory=4Gi");
    // What is below zero in one container takes nothing off the others.
    let mut trick = busy("flink-main-container");
    trick["spec"]["containers"][1]["resources"] = json!({"requests": {"cpu": "-1"}});
    let said = shown(&flink(json!({"podTemplate": trick})));
    assert!(said.contains("an amount is not below zero"), "{said}");
}

/// The operator merges two templates element by element, or by name: the larger counts.
#[test]
fn two_pod_templates_of_flink_are_merged_as_its_operator_does() {
    let containers = |list: &[(&str, &str)]| {
        let one = |(name, cpu): &(&str, &str)| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        json!({"spec": {"containers": list.iter().map(one).collect::<Vec<_>>()}})
    };
    let cpu = |shared: &[(&str, &str)], own: &[(&str, &str)]| {
        let part = json!({"resource": {"cpu": 1, "memory": "1g"}, "podTemplate": containers(own)});
        let job = flink(json!({"podTemplate": containers(shared), "jobManager": part}));
        let manager = shown(&job).split(';').next().unwrap().to_owned();
        manager.split_once("cpu=").unwrap().1.split(' ').next().unwrap().to_owned()
    };
    let main = "flink-main-container";
    assert_eq!(cpu(&[(main, "9"), ("logs", "1")], &[(main, "9"), ("logs", "2")]), "3", "the own one comes before");
    assert_eq!(cpu(&[("logs", "5")], &[(main, "9")]), "6");
    assert_eq!(cpu(&[(main, "9"), ("logs", "1")], &[(main, "9"), ("proxy", "2")]), "4");
}

#[test]
fn what_fields_leave_open_is_read_from_settings() {
    let job = flink(json!({
        "flinkConfiguration": {
            "jobmanager.memory.process.size": "3g", "kubernetes.jobmanager.cpu": "2.5",
            "taskmanager": {"numberOfTaskSlots": 2, "memory": {"process": {"size": "5g"}}},
            "parallelism.default": "7", "slotmanager.redundant-taskmanager-num": "1",
            "external-resource.gpu.amount": "2", "external-resource.gpu.kubernetes.config-key": "nvidia.com/gpu",
        },
        "job": {},
    }));
    let expected = "jobmanager 1x cpu=2500m memory=3Gi; taskmanager 5x cpu=2 memory=5Gi nvidia.com/gpu=2";
    assert_eq!(shown(&job), expected);
    assert_eq!(shown(&flink(json!({}))), "jobmanager 1x cpu=1 memory=1600Mi; taskmanager 1x cpu=1 memory=1728Mi");
    let application = spark(json!({
        "type": "Python",
        "sparkConf": {
            "spark.driver.memory": "2g", "spark.driver.memoryOverhead": "512m", "spark.kubernetes.driver.request.cores": "250m",
            "spark.executor.instances": "9", "spark.kubernetes.executor.request.cores": "3", "spark.executor.cores": "8",
            "spark.executor.memory": "8g", "spark.executor.memoryOverheadFactor": "0.5",
            "spark.executor.pyspark.memory": "1g",
            "spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "2g",
            "spark.executor.resource.gpu.amount": "1", "spark.executor.resource.gpu.vendor": "nvidia.com",
        },
        "executor": {"cores": 1, "memory": "1g"},
    }));
    let expected = "driver 1x cpu=250m memory=2560Mi; executor 9x cpu=3 memory=15Gi nvidia.com/gpu=1";
    assert_eq!(shown(&application), expected);
    let elastic = spark(json!({"sparkConf": {
        "spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.minExecutors": "2",
        "spark.dynamicAllocation.initialExecutors": "5", "spark.dynamicAllocation.maxExecutors": "70",
    }}));
    let executors = |reserve| wants(&elastic, reserve).unwrap().components[1].replicas;
    assert_eq!((executors(Reserve::Initial), executors(Reserve::Min), executors(Reserve::Max)), (5, 2, 70));
    assert_eq!(potential(&elastic).as_deref(), Some("executor=70"));
    for (template, expected) in [
        (
            flink(json!({"flinkConfiguration": {"taskmanager.memory.flink.size": "9g"}})),
            "say the whole in spec.taskManager",
        ),
        (flink(json!({"flinkConfiguration": {"kubernetes.taskmanager.cpu": "lots"}})), "use a number such as 1.5"),
        (flink(json!({"flinkConfiguration": {"kubernetes.pod-template-file.taskmanager": "/x"}})), "use podTemplate"),
        (spark(json!({"sparkConf": {"spark.executor.instances": "many"}})), "spec.sparkConf[spark.executor.instances]"),
        (spark(json!({"sparkConf": {"spark.executor.memory": "1.5g"}})), "spec.sparkConf[spark.executor.memory]"),
        (spark(json!({"sparkConf": {"spark.executor.resource.gpu.amount": "1"}})), "the resource has no name"),
        (
            spark(json!({"sparkConf": {"spark.kubernetes.executor.podTemplateFile": "/x"}})),
            "use spec.executor.template",
        ),
        (spark(json!({"sparkConf": {"spark.kubernetes.memoryOverheadFactor": "-1"}})), "use a number such as 0.1"),
    ] {
        let said = shown(&template);
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
    let status = aggregate(&deployment, &told).expect("a status");
    assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(5), &json!(1)));
    // What nobody tells any more is taken back: zero is not told.
    assert_eq!(status.get("availableReplicas"), Some(&Value::Null));
    assert_eq!(aggregate(&deployment, &[]).expect("a status")["replicas"], Value::Null);
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

/// What a pod states as a whole counts as its server will count it: a limit without a request is one, and a request smaller than what
/// its containers ask for helps nobody.
#[test]
fn what_a_pod_states_as_a_whole_is_counted() {
    let with = |whole: Value, cpu: Value| {
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
        json!({"spec": {"resources": whole, "containers": containers}})
    };
    for (whole, cpu, expected) in [
        (json!({"limits": {"cpu": "100", "memory": "1Gi"}}), Value::Null, "2x cpu=100 memory=1Gi"),
        (json!({"limits": {"cpu": "100"}}), json!("1"), "2x cpu=1"),
        (json!({"requests": {"cpu": "5"}, "limits": {"cpu": "100"}}), json!("1"), "2x cpu=5"),
        (json!({"requests": {"cpu": "1m"}}), json!("7"), "2x cpu=7"),
        (json!({"requests": {"cpu": "-1"}}), json!("7"), "error: cpu is -1: an amount is not below zero"),
        (json!({"limits": {"cpu": "-1"}}), json!("7"), "error: cpu is -1: an amount is not below zero"),
    ] {
        let mut template = with(whole, cpu.clone());
        if cpu.is_null() {
            template["spec"]["containers"][0]["resources"] = json!({});
        }
        assert_eq!(shown(&workload("Deployment", json!({"replicas": 2, "template": template}))), expected);
    }
    let mut less = with(Value::Null, json!("7"));
    less["spec"]["overhead"] = json!({"cpu": "-6"});
    let said = shown(&workload("Deployment", json!({"template": less})));
    assert_eq!(said, "error: cpu is -6: an amount is not below zero");
}
