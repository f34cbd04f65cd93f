-- What a service on PostgreSQL keeps of organizations, as far as scale commands ask for it.

CREATE TABLE orgs (org_id text PRIMARY KEY, tier text NOT NULL);

CREATE TABLE tier_limits (tier text, dimension text, limit_value bigint NOT NULL, PRIMARY KEY (tier, dimension));

CREATE TABLE org_quotas (
    org_id text, dimension text, limit_value bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, dimension)
);

-- What is allocated and what was promised and is not, together; cpu in thousandths.
CREATE TABLE org_usage_view (
    org_id text, dimension text, usage bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, dimension)
) WITH (fillfactor = 50);

-- Of every process type how many are wanted and allocated, and what one takes: the commands of instances keep the second.
CREATE TABLE envs_view (
    org_id text, app text, env text, version bigint NOT NULL, processes jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(), changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, app, env)
) WITH (fillfactor = 50);

CREATE TABLE events (
    event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, occurred_at timestamptz NOT NULL DEFAULT now(),
    org_id text NOT NULL, aggregate_type text NOT NULL, aggregate_id text NOT NULL, aggregate_seq bigint NOT NULL,
    event_type text NOT NULL, event_version int NOT NULL, actor_type text NOT NULL, actor_id text NOT NULL,
    app_id text, env_id text, request_id text NOT NULL, idempotency_key text, payload jsonb NOT NULL,
    UNIQUE (org_id, aggregate_id, aggregate_seq)
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
    the_tier text;
    known idempotency_keys;
    stored envs_view;
    process jsonb;
    wanted jsonb;
    old jsonb := '[]';
    before bigint;
    allocated bigint;
    grown bigint;
    is_more boolean := false;
    -- Instances, memory and cpu.
    more bigint[] := '{0,0,0}';
    violations jsonb;
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
            IF known.request_hash = sha256(request_body::bytea) THEN
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
        before := process -> 'desired';
        allocated := process -> 'allocated';
        old := old || jsonb_build_object('process_type', types[at], 'desired', before);
        is_more := is_more OR counts[at] > before;
        -- What runs counts until it is stopped.
        grown := greatest(counts[at], allocated) - greatest(before, allocated);
        IF grown <> 0 THEN
            more[1] := more[1] + grown;
            more[2] := more[2] + grown * (process -> 'memory_bytes')::bigint;
            more[3] := more[3] + grown * (process -> 'cpu_milli')::bigint;
        END IF;
        wanted := jsonb_set(wanted, ARRAY[types[at], 'desired'], to_jsonb(counts[at]));
    END LOOP;
    IF is_more THEN
        SELECT jsonb_agg(jsonb_build_object('dimension', u.dimension, 'limit', coalesce(q.limit_value, t.limit_value),
                'current_usage', u.usage, 'requested_delta', more[d.at])) INTO violations
            FROM unnest(ARRAY['max_instances', 'max_total_memory_bytes', 'max_total_cpu_request'])
                WITH ORDINALITY AS d(dimension, at)
            JOIN org_usage_view u ON u.org_id = the_org AND u.dimension = d.dimension
            LEFT JOIN org_quotas q ON q.org_id = the_org AND q.dimension = d.dimension
            LEFT JOIN tier_limits t ON t.tier = the_tier AND t.dimension = d.dimension
            WHERE more[d.at] > 0 AND u.usage + more[d.at] > coalesce(q.limit_value, t.limit_value);
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
            FROM unnest(ARRAY['max_instances', 'max_total_memory_bytes', 'max_total_cpu_request'])
                WITH ORDINALITY AS d(dimension, at)
            WHERE u.org_id = the_org AND u.dimension = d.dimension;
    END IF;
    IF wanted <> stored.processes THEN
        UPDATE envs_view SET version = version + 1, processes = wanted, changed_at = now()
            WHERE org_id = the_org AND app = the_app AND env = the_env;
        stored.version := stored.version + 1;
        INSERT INTO events (org_id, aggregate_type, aggregate_id, aggregate_seq, event_type, event_version, actor_type,
                actor_id, app_id, env_id, request_id, idempotency_key, payload)
            VALUES (the_org, 'env', the_app || '.' || the_env, stored.version, 'env.scale_set', 1, 'user',
                actor, the_app, the_env, request, the_key, jsonb_build_object('old_scales', old, 'scales',
                    (SELECT jsonb_agg(jsonb_build_object('process_type', t, 'desired', c))
                        FROM unnest(types, counts) AS s(t, c))));
    END IF;
    status := 200;
    body := jsonb_build_object('id', the_app || '.' || the_env, 'app', the_app, 'env', the_env,
        'version', stored.version, 'created_at', stored.created_at, 'processes', wanted);
    IF the_key IS NOT NULL THEN
        INSERT INTO idempotency_keys VALUES
            (the_org, actor, the_key, sha256(request_body::bytea), body, now() + interval '24 hours')
            ON CONFLICT (org_id, actor_id, idempotency_key) DO UPDATE
            SET request_hash = excluded.request_hash, answer = excluded.answer, expires_at = excluded.expires_at;
    END IF;
END $$;
