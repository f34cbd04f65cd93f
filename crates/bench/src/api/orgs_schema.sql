-- What a service on PostgreSQL keeps of organizations, as far as scale commands ask for it.

CREATE TABLE orgs (org_id text PRIMARY KEY, tier text NOT NULL);

CREATE TABLE tier_limits (tier text, dimension text, limit_value bigint NOT NULL, PRIMARY KEY (tier, dimension));

CREATE TABLE org_quotas (
    org_id text, dimension text, limit_value bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz, PRIMARY KEY (org_id, dimension)
);

-- What is allocated and what was promised and is not, together; cpu in thousandths.
CREATE TABLE org_usage_view (
    org_id text, dimension text, usage bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, dimension)
) WITH (fillfactor = 50);

-- Of every process type how many are wanted, and what one takes.
CREATE TABLE envs_view (
    org_id text, app text, env text, version bigint NOT NULL, processes jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(), changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, app, env)
) WITH (fillfactor = 50);

CREATE TABLE instances_desired_view (
    org_id text, instance_id text, app text NOT NULL, env text NOT NULL, process_type text NOT NULL, node_id text NOT NULL,
    release_id text NOT NULL, desired_state text NOT NULL, memory_bytes bigint NOT NULL, cpu_milli bigint NOT NULL,
    PRIMARY KEY (org_id, instance_id)
);
-- All that a command asks of them is in the index.
CREATE INDEX instances_of_group ON instances_desired_view (org_id, app, env, process_type)
    INCLUDE (memory_bytes, cpu_milli) WHERE desired_state <> 'stopped';

CREATE TABLE volume_attachments_view (
    org_id text, attachment_id text, app text NOT NULL, env text NOT NULL, process_type text NOT NULL, volume_id text NOT NULL,
    PRIMARY KEY (org_id, attachment_id)
);
CREATE INDEX attachments_of_group ON volume_attachments_view (org_id, app, env, process_type);

-- Numbered within the organization under its lock, so that who reads on from a number misses nothing that is committed later.
CREATE TABLE events (
    org_id text, event_id bigint, occurred_at timestamptz NOT NULL DEFAULT now(),
    aggregate_type text NOT NULL, aggregate_id text NOT NULL, aggregate_seq bigint NOT NULL,
    event_type text NOT NULL, event_version int NOT NULL, actor_type text NOT NULL, actor_id text NOT NULL,
    app_id text, env_id text, request_id text NOT NULL, idempotency_key text,
    payload jsonb NOT NULL, old jsonb NOT NULL, new jsonb NOT NULL,
    PRIMARY KEY (org_id, event_id)
);

CREATE TABLE audit (
    audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, occurred_at timestamptz NOT NULL DEFAULT now(),
    org_id text NOT NULL, actor_id text NOT NULL, request_id text NOT NULL, details jsonb NOT NULL
);

CREATE TABLE idempotency_keys (
    org_id text, actor_id text, idempotency_key text, request_hash bytea NOT NULL, answer text NOT NULL,
    expires_at timestamptz NOT NULL, PRIMARY KEY (org_id, actor_id, idempotency_key)
);

-- One scale command, in the transaction that calls it.
CREATE FUNCTION set_scale(
    the_org text, the_app text, the_env text, types text[], counts bigint[], expected bigint,
    actor text, request text, the_key text, request_body text, OUT status int, OUT body text
) LANGUAGE plpgsql AS $$
DECLARE
    dimensions CONSTANT text[] := '{max_instances,max_total_memory_bytes,max_total_cpu_request}';
    the_tier text;
    known idempotency_keys;
    stored envs_view;
    process jsonb;
    wanted jsonb;
    old_scales jsonb := '[]';
    new_scales jsonb := '[]';
    before bigint;
    runs bigint[];
    unit bigint[];
    grown bigint;
    -- Instances, memory and cpu: what is asked for, and what usage changes by.
    asked bigint[] := '{0,0,0}';
    more bigint[] := '{0,0,0}';
    violations jsonb;
    state jsonb;
BEGIN
    -- One command of an organization at a time.
    SELECT tier INTO the_tier FROM orgs WHERE org_id = the_org FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        status := 404; body := '{"code":"not_found","status":404}';
        RETURN;
    END IF;
    IF the_key IS NOT NULL THEN
        SELECT * INTO known FROM idempotency_keys
            WHERE org_id = the_org AND actor_id = actor AND idempotency_key = the_key AND expires_at > now();
        IF FOUND THEN
            IF known.request_hash = sha256(convert_to(request_body, 'UTF8')) THEN
                status := 200; body := known.answer;
            ELSE
                status := 409; body := '{"code":"idempotency_key_reuse","status":409}';
            END IF;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO stored FROM envs_view WHERE org_id = the_org AND app = the_app AND env = the_env;
    IF NOT FOUND THEN
        status := 404; body := '{"code":"not_found","status":404}';
        RETURN;
    END IF;
    IF expected <> stored.version THEN
        status := 409; body := '{"code":"version_conflict","status":409}';
        RETURN;
    END IF;
    wanted := stored.processes;
    FOR at IN 1 .. cardinality(types) LOOP
        process := wanted -> types[at];
        IF process IS NULL THEN
            status := 400; body := '{"code":"invalid_argument","status":400}';
            RETURN;
        END IF;
        IF counts[at] > 1 AND EXISTS (SELECT FROM volume_attachments_view
                WHERE org_id = the_org AND app = the_app AND env = the_env AND process_type = types[at]) THEN
            status := 409; body := '{"code":"volume_replica_limit","status":409}';
            RETURN;
        END IF;
        before := process -> 'desired';
        old_scales := old_scales || jsonb_build_object('process_type', types[at], 'desired', before);
        new_scales := new_scales || jsonb_build_object('process_type', types[at], 'desired', counts[at]);
        SELECT ARRAY[count(*), coalesce(sum(memory_bytes), 0)::bigint, coalesce(sum(cpu_milli), 0)::bigint] INTO runs
            FROM instances_desired_view WHERE org_id = the_org AND app = the_app AND env = the_env
                AND process_type = types[at] AND desired_state <> 'stopped';
        unit := ARRAY[1, (process -> 'memory_bytes')::bigint, (process -> 'cpu_milli')::bigint];
        -- What runs counts until it is stopped; what goes down gives no credit to what goes up.
        FOR d IN 1 .. 3 LOOP
            grown := greatest(counts[at] * unit[d], runs[d]) - greatest(before * unit[d], runs[d]);
            more[d] := more[d] + grown;
            asked[d] := asked[d] + greatest(grown, 0);
        END LOOP;
        wanted := jsonb_set(wanted, ARRAY[types[at], 'desired'], to_jsonb(counts[at]));
    END LOOP;
    IF asked <> '{0,0,0}' THEN
        SELECT jsonb_agg(jsonb_build_object('dimension', u.dimension, 'limit', coalesce(q.limit_value, t.limit_value),
                'current_usage', u.usage, 'requested_delta', asked[d.at]) ORDER BY d.at) INTO violations
            FROM unnest(dimensions) WITH ORDINALITY AS d(dimension, at)
            JOIN org_usage_view u ON u.org_id = the_org AND u.dimension = d.dimension
            LEFT JOIN org_quotas q ON q.org_id = the_org AND q.dimension = d.dimension
                AND (q.expires_at IS NULL OR q.expires_at > now())
            LEFT JOIN tier_limits t ON t.tier = the_tier AND t.dimension = d.dimension
            WHERE asked[d.at] > 0 AND u.usage + asked[d.at] > coalesce(q.limit_value, t.limit_value);
        IF violations IS NOT NULL THEN
            INSERT INTO audit (org_id, actor_id, request_id, details) VALUES (the_org, actor, request, violations);
            status := 409;
            body := jsonb_build_object('code', 'quota_exceeded', 'status', 409, 'request_id', request,
                'details', (violations -> 0) || jsonb_build_object('violations', violations));
            RETURN;
        END IF;
    END IF;
    IF more <> '{0,0,0}' THEN
        UPDATE org_usage_view u SET usage = u.usage + more[d.at], updated_at = now()
            FROM unnest(dimensions) WITH ORDINALITY AS d(dimension, at)
            WHERE u.org_id = the_org AND u.dimension = d.dimension AND more[d.at] <> 0;
    END IF;
    state := jsonb_build_object('app', the_app, 'env', the_env, 'version', stored.version, 'processes', stored.processes);
    IF wanted <> stored.processes THEN
        UPDATE envs_view SET version = version + 1, processes = wanted, changed_at = now()
            WHERE org_id = the_org AND app = the_app AND env = the_env;
        stored.version := stored.version + 1;
        INSERT INTO events (org_id, event_id, aggregate_type, aggregate_id, aggregate_seq, event_type, event_version,
                actor_type, actor_id, app_id, env_id, request_id, idempotency_key, payload, old, new)
            VALUES (the_org, (SELECT coalesce(max(event_id), 0) + 1 FROM events WHERE org_id = the_org),
                'env', the_app || '.' || the_env, stored.version, 'env.scale_set', 1, 'user',
                actor, the_app, the_env, request, the_key,
                jsonb_build_object('old_scales', old_scales, 'scales', new_scales), state,
                state || jsonb_build_object('version', stored.version, 'processes', wanted));
    END IF;
    status := 200;
    body := state || jsonb_build_object('id', the_app || '.' || the_env, 'version', stored.version,
        'created_at', stored.created_at, 'processes', wanted);
    IF the_key IS NOT NULL THEN
        INSERT INTO idempotency_keys VALUES
            (the_org, actor, the_key, sha256(convert_to(request_body, 'UTF8')), body, now() + interval '24 hours')
            ON CONFLICT (org_id, actor_id, idempotency_key) DO UPDATE
            SET request_hash = excluded.request_hash, answer = excluded.answer, expires_at = excluded.expires_at;
    END IF;
END $$;
