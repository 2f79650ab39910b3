// What is not well, and what to do.
import type { HealthFinding } from "../answers";
import { BASE, loadMore, useFollowed, type Question } from "../live";
import { Count, Filter, Gaps, Link, Missing, Same, Since, Things } from "../parts";
import { place, setParams, to, toUnit } from "../route";

export function keyOf(row: HealthFinding): string {
  return [...Object.values(row.subject).map(String), row.reason].join("/");
}

export function HealthView() {
  const severity = place.value.params.get("severity") ?? "";
  const question: Question<"health"> = { topic: "health", path: "health", params: { severity }, keyOf };
  const { head, value, missing, order, rows, total } = useFollowed(question);
  if (!value) return <Missing message={missing} />;
  const shown = order.map((key) => rows.get(key)).filter((row) => row !== undefined);
  return (
    <>
      <Gaps gaps={head?.gaps} />
      <div class="filters">
        <Filter label="Severity" value={severity} options={["Error", "Warning"]} onChange={(text) => setParams({ severity: text })} />
        <output class="push"><Count of={total} /> to look at</output>
      </div>
      {total === 0 && <p class="empty">All is well.</p>}
      <ol class="plain findings">
        {shown.map((row) => (
          <li key={keyOf(row)}>
            <div class="line">
              <span class={`badge ${row.severity === "Error" ? "class-misconfigured" : "class-held"}`}>{row.severity}</span>
              <Subject row={row} /> <strong>{row.reason}</strong>
              {row.gpusOut > 0 && <span><Things of={row.gpusOut} what="GPU" /> out</span>}
              {row.since && <span class="push">since <Since at={row.since} /></span>}
            </div>
            <p>{row.message}</p>
            <p class="do"><strong>Do:</strong> {row.doThis}</p>
          </li>
        ))}
      </ol>
      {order.length < total && <button type="button" onClick={() => void loadMore(question)}>more</button>}
      <Same command="koord sick" url={`${BASE}/health`} />
    </>
  );
}

const PLACES: Record<string, (name: string, namespace: string) => string> = {
  Node: (name) => to("node", name),
  Device: (name) => to("node", name),
  Pod: (name, namespace) => toUnit("pod", `${namespace}/${name}`),
  PodGroup: (name, namespace) => toUnit("podgroup", `${namespace}/${name}`),
  ElasticQuota: (name) => to("quotas", name),
};

export function Subject({ row }: { row: HealthFinding }) {
  const { kind, namespace, name, device } = row.subject;
  const text = `${kind} ${namespace ? `${namespace}/` : ""}${name}${device ? ` ${device}` : ""}`;
  const find = PLACES[kind];
  return find ? <Link href={find(name, namespace ?? "")}>{text}</Link> : <span>{text}</span>;
}
