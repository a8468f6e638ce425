{{- $schema := .Values.autoscaling.schema -}}
{{- $lists := dict "kinds" list "excluded" list -}}
{{- range .Values.worker.only }}{{ $_ := set $lists "kinds" (append $lists.kinds (printf "'%s'" (replace "'" "''" .))) }}{{ end -}}
{{- range .Values.autoscaling.exclude }}{{ $_ := set $lists "excluded" (append $lists.excluded (printf "'%s'" (replace "'" "''" .))) }}{{ end -}}
-- Age of the oldest due job in seconds. Each lookup reads one entry of the index redrive_job_ready.
-- A job type that is paused after an outage counts as 1, because one worker must probe it. So does an expired lease.
WITH RECURSIVE kinds(kind) AS (
    (SELECT kind FROM {{ $schema }}.redrive_job WHERE state = 0 ORDER BY kind LIMIT 1)
    UNION ALL
    SELECT (SELECT job.kind FROM {{ $schema }}.redrive_job AS job WHERE job.state = 0 AND job.kind > kinds.kind ORDER BY job.kind LIMIT 1)
    FROM kinds WHERE kinds.kind IS NOT NULL
)
SELECT greatest(
    (SELECT coalesce(max(CASE WHEN parked.kind IS NULL THEN ceil(extract(epoch FROM now() - due.due_at)) ELSE 1 END), 0)
    FROM kinds
    CROSS JOIN (VALUES (-2), (-1), (0), (1), (2), (9)) AS level(priority)
    CROSS JOIN LATERAL (
        SELECT job.due_at FROM {{ $schema }}.redrive_job AS job
        WHERE job.state = 0 AND job.kind = kinds.kind AND job.priority = level.priority AND job.due_at <= now()
        ORDER BY job.due_at LIMIT 1
    ) AS due
    LEFT JOIN {{ $schema }}.redrive_kind AS parked ON parked.kind = kinds.kind AND parked.parked_at IS NOT NULL
    WHERE kinds.kind IS NOT NULL
        {{- with $lists.kinds }} AND kinds.kind IN ({{ join ", " . }}){{ end }}
        {{- with $lists.excluded }} AND kinds.kind NOT IN ({{ join ", " . }}){{ end }}
        AND NOT EXISTS (
            SELECT FROM {{ $schema }}.redrive_pause AS pause
            WHERE (pause.scope = 'app' OR (pause.scope = 'job type' AND pause.name = kinds.kind))
                AND (pause.paused_until IS NULL OR pause.paused_until > now())
        )),
    (SELECT count(*) FROM (SELECT FROM {{ $schema }}.redrive_job WHERE state = 1 AND lease_until < now() LIMIT 1) AS expired)
)::bigint
