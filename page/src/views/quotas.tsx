// Quotas as a tree, and one quota with who uses it.
import { useEffect, useMemo } from "preact/hooks";
import type { QuotaInFull, QuotaView } from "../answers";
import { BASE, loadMore, useFollowed, type Question } from "../live";
import { Filter, Gaps, isUnread, Link, Missing, QuotaName, Same, Since } from "../parts";
import { place, setParams, to, toList, toUnit } from "../route";
import { numberOf } from "../amounts";

const MOST_ROWS = 300;
const MOST_OVER = 10;
const QUOTAS: Question<"quotas"> = { topic: "quotas", path: "quotas", keyOf: (quota) => quota.name };

/** All quotas, not only the first page: of any of them it matters what it is owed. */
export function useAllQuotas() {
  const followed = useFollowed(QUOTAS);
  useEffect(() => {
    if (followed.rows.size < followed.total) void loadMore(QUOTAS);
  }, [followed.rows, followed.total]);
  return followed;
}

export function QuotasView(props: { parts: string[] }) {
  const name = props.parts[0];
  return name ? <OneQuota name={name} /> : <AllQuotas />;
}

function AllQuotas() {
  const { head, value, missing, rows } = useAllQuotas();
  const quotas = [...rows.values()];
  const search = place.value.params.get("q") ?? "";
  const resources = useMemo(() => findResources(quotas), [rows]);
  const resource = place.value.params.get("resource") ?? resources[0] ?? "";
  if (!value) return <Missing message={missing} />;
  const tree = search
    ? quotas.filter((quota) => quota.name.includes(search)).map((quota) => ({ quota, depth: 0 }))
    : arrange(quotas);
  const largest = Math.max(1, ...quotas.map((quota) => scaleOf(quota, resource)));
  return (
    <>
      <Gaps gaps={head?.gaps} />
      {quotas.length === 0 && <p class="empty">{isUnread(head?.gaps, "elasticquotas") ? "Which quotas there are is not known." : "There are no quotas."}</p>}
      {quotas.length > 0 && (
        <>
          <div class="filters">
            <Filter label="Name" value={search} isSearch onChange={(q) => setParams({ q })} />
            <Filter label="Resource" value={resource} options={resources} isChoice onChange={(text) => setParams({ resource: text })} />
          </div>
          <ul class="legend">
            <li><span class="key used" /> used</li>
            <li><span class="key borrowed">b</span> used beyond what is guaranteed</li>
            <li><span class="key tick-min" /> min</li>
            <li><span class="key tick-share" /> entitled to</li>
          </ul>
          <div class="scroll" tabIndex={0} role="region" aria-label="Quotas">
            <table class="quotas">
              <thead>
                <tr>
                  <th scope="col">Quota</th><th scope="col">{resource}</th>
                  {["Used", "Min", "Entitled", "Max", "Demand"].map((text) => <th key={text} scope="col" class="number">{text}</th>)}
                </tr>
              </thead>
              <tbody>
                {tree.slice(0, MOST_ROWS).map(({ quota, depth }) => (
                  <tr key={quota.name}>
                    <th scope="row"><span class={`depth-${Math.min(depth, 8)}`}><QuotaName name={quota.name} /></span>
                      {quota.problem && <span class="badge class-misconfigured" title={quota.problem.message}>faulty</span>}</th>
                    <td class="bar-cell"><QuotaBar quota={quota} resource={resource} largest={largest} /></td>
                    {[quota.used, quota.min, quota.entitled, quota.max, quota.demand].map((amounts, at) => (
                      <td key={at} class="number">{amounts[resource] ?? (amounts === quota.max ? "–" : "0")}</td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {tree.length > MOST_ROWS && <p class="empty">and {(tree.length - MOST_ROWS).toLocaleString("en")} more: search by name.</p>}
        </>
      )}
      <Same command="koord quota tree" url={`${BASE}/quotas`} />
    </>
  );
}

export function findResources(quotas: QuotaView[]): string[] {
  const names = new Set(quotas.flatMap((quota) => [...Object.keys(quota.max), ...Object.keys(quota.min)]));
  return [...names].sort((a, b) => Number(b.includes("gpu")) - Number(a.includes("gpu")) || a.localeCompare(b));
}

/** Put children behind their parents; a quota of which the parent is not known is at the top. */
function arrange(quotas: QuotaView[]): { quota: QuotaView; depth: number }[] {
  const names = new Set(quotas.map((quota) => quota.name));
  const children = new Map<string, QuotaView[]>();
  for (const quota of quotas) {
    const parent = quota.parent !== null && names.has(quota.parent) ? quota.parent : "";
    children.set(parent, [...(children.get(parent) ?? []), quota]);
  }
  const arranged: { quota: QuotaView; depth: number }[] = [];
  const add = (parent: string, depth: number) => {
    for (const quota of children.get(parent) ?? []) {
      arranged.push({ quota, depth });
      if (depth < 64) add(quota.name, depth + 1);
    }
  };
  add("", 0);
  return arranged;
}

export function scaleOf(quota: QuotaView, resource: string): number {
  const most = numberOf(quota.max[resource]);
  const others = [quota.used, quota.min, quota.entitled].map((amounts) => numberOf(amounts[resource]));
  return Math.max(Number.isFinite(most) ? most : 0, ...others.filter(Number.isFinite));
}

/** How much of what is guaranteed to a quota, and asked for in it, it does not use. */
export function findOwed(quota: QuotaView, resource: string): number {
  const [demand, least, used] = [quota.demand, quota.scaledMin, quota.used].map((amounts) => numberOf(amounts[resource]));
  return Math.max(0, Math.min(demand!, least!) - used!);
}

/** What a quota is owed, and who uses more than a share: of others it is told only where that matters here. */
function Balance({ quota, quotas }: { quota: QuotaInFull; quotas: QuotaView[] }) {
  const others = quotas.filter((other) => !other.isParent && other.name !== quota.name);
  const owed = Object.keys(quota.scaledMin).filter((resource) => findOwed(quota, resource) > 0).sort();
  return (
    <ul class="plain">
      {Object.entries(quota.over).map(([resource, amount]) => <li key={resource}>It uses {amount} {resource} more than its share.</li>)}
      {owed.map((resource) => (
        <li key={resource}>
          <strong>It is owed {tellAmount(quota, resource)}</strong>: guaranteed, asked for, and not used.
          <ul>
            {others.filter((other) => other.over[resource]).slice(0, MOST_OVER).map((other) => (
              <li key={other.name}><QuotaName name={other.name} /> uses {other.over[resource]} {resource} more than its share.</li>
            ))}
          </ul>
        </li>
      ))}
    </ul>
  );
}

/** Bytes and parts of CPUs are not sums to write in full: of those it is told that some is owed. */
function tellAmount(quota: QuotaView, resource: string): string {
  const isPlain = [quota.demand, quota.scaledMin, quota.used].every((amounts) => /^\d*$/.test(amounts[resource] ?? ""));
  return isPlain ? `${findOwed(quota, resource).toLocaleString("en")} ${resource}` : resource;
}

/** What a quota uses within its max, drawn to the scale of the largest; numbers stand beside it. */
export function QuotaBar(props: { quota: QuotaView; resource: string; largest: number }) {
  const { quota, resource, largest } = props;
  const read = (amounts: Record<string, string>) => numberOf(amounts[resource]);
  const [used, min, share, most] = [read(quota.used), read(quota.scaledMin), read(quota.entitled), read(quota.max)];
  const percent = (amount: number) => `${Math.min(100, (100 * amount) / largest)}%`;
  const within = Math.min(used, min);
  return (
    <div class="quota-bar" aria-hidden="true">
      <span class="room" style={{ width: percent(Number.isFinite(most) ? most : largest) }} />
      <span class="used" style={{ width: percent(within) }} />
      {used > within && <span class="borrowed" style={{ left: percent(within), width: percent(used - within) }}>b</span>}
      <span class="tick-min" style={{ left: percent(min) }} />
      <span class="tick-share" style={{ left: percent(share) }} />
    </div>
  );
}

function OneQuota({ name }: { name: string }) {
  const path = `quotas/${encodeURIComponent(name)}`;
  const { head, value, missing } = useFollowed({ topic: "quota", path, inPath: { name } });
  const quotas = [...useAllQuotas().rows.values()];
  if (!value) return <Missing message={missing} />;
  const resources = [...new Set([...Object.keys(value.max), ...Object.keys(value.min)])].sort();
  return (
    <>
      <Gaps gaps={head?.gaps} />
      <p class="lead">
        <Link href={to("quotas")}>All quotas</Link> · above it: {value.parent?.startsWith("koordinator-") ? "none" : <QuotaName name={value.parent} />}
        · <Link href={toList("queue", { quota: name })}>what waits</Link>
      </p>
      {value.problem && <p class="missing">{value.problem.message}</p>}
      <section aria-labelledby="numbers">
        <h2 id="numbers">Numbers</h2>
        <table class="small">
          <thead><tr><th scope="col">Resource</th>{["Used", "Min", "Guaranteed", "Entitled", "Max", "Demand"].map((text) => <th key={text} scope="col" class="number">{text}</th>)}</tr></thead>
          <tbody>
            {resources.map((resource) => (
              <tr key={resource}>
                <th scope="row">{resource}</th>
                {[value.used, value.min, value.scaledMin, value.entitled, value.max, value.demand].map((amounts, at) => (
                  <td key={at} class="number">{amounts[resource] ?? (amounts === value.max ? "–" : "0")}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
        <Balance quota={value} quotas={quotas} />
        {value.loans.length > 0 && (
          <ul class="plain">
            {value.loans.map((loan) => (
              <li key={`${loan.lender}/${loan.borrower}/${loan.resource}`}>
                <QuotaName name={loan.borrower} /> uses {loan.amount} {loan.resource} that <QuotaName name={loan.lender} /> leaves idle.
              </li>
            ))}
          </ul>
        )}
      </section>
      <section aria-labelledby="users">
        <h2 id="users">Who uses it</h2>
        {value.users.length === 0 && <p class="empty">Nobody.</p>}
        {value.users.length > 0 && (
          <table class="small">
            <thead><tr><th scope="col">Unit</th><th scope="col">Quota</th><th scope="col">Uses</th><th scope="col" class="number">Pods</th><th scope="col">State</th><th scope="col" class="number">Since</th></tr></thead>
            <tbody>
              {value.users.slice(0, MOST_UNITS).map((user) => (
                <tr key={`${user.kind}/${user.name}/${user.quota}`}>
                  <td><UnitLink kind={user.kind} name={user.name} /></td><td><QuotaName name={user.quota} /></td>
                  <td>{tellAmounts(user.used)}</td><td class="number">{user.pods}</td><td>{user.state}</td>
                  <td class="number"><Since at={user.since} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        <More of={value.users.length} />
      </section>
      <section aria-labelledby="waits">
        <h2 id="waits">What waits in it</h2>
        {value.waits.length === 0 && <p class="empty">Nothing.</p>}
        {value.waits.length > 0 && (
          <table class="small">
            <thead><tr><th scope="col" class="number">#</th><th scope="col">Unit</th><th scope="col">Asks for</th><th scope="col" class="number">Pods</th><th scope="col">Reason</th><th scope="col" class="number">Waits</th></tr></thead>
            <tbody>
              {value.waits.slice(0, MOST_UNITS).map((wait) => (
                <tr key={`${wait.kind}/${wait.name}/${wait.quota}`}>
                  <td class="number">{wait.position ?? "–"}</td><td><UnitLink kind={wait.kind} name={wait.name} /></td>
                  <td>{tellAmounts(wait.asks)}</td><td class="number">{wait.pods}</td><td>{wait.reason}</td>
                  <td class="number"><Since at={wait.since} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        <More of={value.waits.length} />
      </section>
      <Same command={`koord quota explain ${name}`} url={`${BASE}/${path}`} />
    </>
  );
}

const MOST_UNITS = 200;

function More(props: { of: number }) {
  return props.of > MOST_UNITS ? <p class="empty">and {(props.of - MOST_UNITS).toLocaleString("en")} more</p> : null;
}

function UnitLink(props: { kind: string; name: string | null }) {
  if (!props.name) return <span class="none">a unit of others</span>;
  return <Link href={toUnit(props.kind === "pod" ? "pod" : "podgroup", props.name)}>{props.name}</Link>;
}

/** Amounts in words; that a pod is one pod goes without saying. */
export function tellAmounts(amounts: Record<string, string>): string {
  return Object.entries(amounts).filter(([name]) => name !== "pods").map(([name, amount]) => `${amount} ${name}`).join(", ") || "nothing";
}
