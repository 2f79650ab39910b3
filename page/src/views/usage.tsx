// Usage over time: whether a quota got its share of a month, who used what, and what was lost.
import { useEffect, useState } from "preact/hooks";
import type { ClusterLine, Envelope, QuotaLine, UsageReport } from "../answers";
import { download, type Cell } from "../csv";
import { BASE, get, pathOf, Refusal } from "../live";
import { Copyable, Filter, Gaps, Link, Missing, Same, ShareBar, tellSeconds, tellZone, type Share } from "../parts";
import { place, setParams, toList } from "../route";
import { useAllQuotas } from "./quotas";

const GPU_HOUR = 3_600_000_000;
const MONTHS = 13;
const AGAIN_MS = 60_000;
/** With more quotas than that one is written, not chosen. */
const MOST_CHOICES = 300;

/** GPU hours: whole numbers of thousandths of GPUs times milliseconds are shown as people read them. */
function hours(held: number | null): string {
  if (held === null) return "";
  const digits = held >= GPU_HOUR / 10 || held <= 0 ? 1 : 3;
  return (held / GPU_HOUR).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function exactly(held: number | null): string {
  return held === null ? "" : (held / GPU_HOUR).toFixed(3);
}

/** An answer that takes long and is not followed: asked for when its path changes, and each minute. */
function useAsked<T>(path: string): { head: Envelope<T> | null; missing: string } {
  const [told, setTold] = useState<{ path: string; head: Envelope<T> | null; missing: string }>({ path: "", head: null, missing: "" });
  useEffect(() => {
    let isLate = false;
    const ask = () => get<T>(path).then(
      (head) => { if (!isLate) setTold({ path, head, missing: "" }); },
      (error: unknown) => {
        const missing = error instanceof Refusal ? error.message : "the server does not answer";
        if (!isLate) setTold((before) => (before.path === path && before.head ? before : { path, head: null, missing }));
      },
    );
    void ask();
    const timer = window.setInterval(() => { if (!document.hidden) void ask(); }, AGAIN_MS);
    return () => {
      isLate = true;
      window.clearInterval(timer);
    };
  }, [path]);
  return told.path === path ? told : { head: null, missing: "" };
}

export function UsageView() {
  const given = place.value.params;
  const read = (name: string) => given.get(name) ?? "";
  const [month, quota, tz] = [read("month"), read("quota"), read("tz")];
  const question = { path: "usage", params: { month, quota, tz } };
  const { head, missing } = useAsked<UsageReport>(pathOf(question));
  const quotas = [...useAllQuotas().rows.keys()].sort();
  const report = head?.value;
  const isNotKept = head?.gaps.some((gap) => gap.because === "NotStored") ?? false;
  const options = ["report", ...(month ? ["--month", month] : []), ...(quota ? ["--quota", quota] : []), ...(tz ? ["--tz", tz] : [])];
  return (
    <>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <MonthFilter value={month} />
        <Filter label="Quota" value={quota} {...(quotas.length && quotas.length <= MOST_CHOICES ? { options: withChosen(quotas, quota) } : {})}
          onChange={(name) => setParams({ quota: name })} />
        <ZoneFilter value={tz} />
      </form>
      <Gaps gaps={head?.gaps.filter((gap) => isNotKept || gap.because === "Hidden")} />
      {isNotKept && (
        <p class="empty">
          Usage over months is kept by <code>koord serve</code> with <code>see.store</code>, or by <Copyable text="koord usage record --store usage.db" />;
          then begin with <Copyable text="koord page --store usage.db" />.
        </p>
      )}
      {report ? <Report report={report} quota={quota} /> : <Missing message={missing} />}
      <Same command={`koord usage ${options.join(" ")}${isNotKept ? "" : " --store FILE"}`} url={`${BASE}/${pathOf(question)}`} />
    </>
  );
}

function withChosen(names: string[], chosen: string): string[] {
  return chosen && !names.includes(chosen) ? [chosen, ...names] : names;
}

function Report({ report, quota }: { report: UsageReport; quota: string }) {
  const isEmpty = !report.held && !report.quotas.length && !report.cluster.length;
  return (
    <>
      <p class="sentence">
        {report.held ? <>Pods held GPUs for <strong>{hours(report.held)} hours</strong>.</> : isEmpty ? "Nothing is known to have been held then." : "No pod held a GPU."}
        {" "}<small>{report.from} to {report.to}. An hour is that of one GPU, whether it was busy or not.</small>
      </p>
      <Shares report={report} quota={quota} />
      <Users report={report} />
      <Lost report={report} />
      <AllGpus report={report} />
      <Exactness report={report} />
    </>
  );
}

// --- what is asked ---------------------------------------------------------------------------------

/** The last months, this one first; another one, or a day, that the address names stays. */
function MonthFilter({ value }: { value: string }) {
  const now = new Date();
  const months = Array.from({ length: MONTHS }, (_, ago) => new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - ago)));
  const names = months.map((first) => first.toISOString().slice(0, 7));
  const tell = (first: Date) => first.toLocaleDateString("en", { month: "long", year: "numeric", timeZone: "UTC" });
  const suffix = ["so far", "last month"];
  return (
    <label class="filter">
      <span>Month</span>
      <select value={value || names[0]} onChange={(event) => setParams({ month: event.currentTarget.value === names[0] ? "" : event.currentTarget.value })}>
        {value && !names.includes(value) && <option value={value}>{value}</option>}
        {months.map((first, ago) => <option key={names[ago]} value={names[ago]}>{tell(first)}{suffix[ago] ? ` (${suffix[ago]})` : ""}</option>)}
      </select>
    </label>
  );
}

function ZoneFilter({ value }: { value: string }) {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!value && own === "UTC") return null;
  return (
    <label class="filter">
      <span>Months of</span>
      <select value={value} onChange={(event) => setParams({ tz: event.currentTarget.value })}>
        <option value="">UTC</option>
        {own !== "UTC" && <option value={own}>{tellZone()}</option>}
        {value && value !== own && <option value={value}>{value}</option>}
      </select>
    </label>
  );
}

function Download(props: { name: string; report: UsageReport; heading: string[]; rows: Cell[][] }) {
  const { from, to } = props.report;
  const file = `usage-${props.name}-${from.slice(0, 10)}.csv`;
  const rows = props.rows.map((row) => [from, to, ...row]);
  return <button type="button" class="keep" onClick={() => download(file, [["from", "to", ...props.heading], ...rows])}>Download CSV<span class="unseen"> of {props.name}</span></button>;
}

// --- shares ----------------------------------------------------------------------------------------

const PARTS: [keyof QuotaLine, string, string, string][] = [
  ["withinMin", "used", "u", "used, of what is guaranteed"],
  ["borrowed", "borrowed", "b", "borrowed: used beyond that"],
  ["owed", "broken", "o", "owed: guaranteed, asked for, and not had"],
  ["idleMin", "free", "i", "idle: guaranteed, and not asked for"],
];
const COLUMNS: [keyof QuotaLine, string][] = [
  ["used", "Used"], ["guaranteed", "Guaranteed"], ["borrowed", "Borrowed"], ["owed", "Owed"], ["idleMin", "Idle"], ["lent", "Lent"],
];

function Shares({ report, quota }: { report: UsageReport; quota: string }) {
  const { quotas } = report;
  if (!quotas.length) return null;
  const own = quotas.find((line) => line.quota === quota);
  const isWatched = quotas.some((line) => line.guaranteed !== null);
  const largest = Math.max(1, ...quotas.map((line) => Math.max(line.held, sumOf(line))));
  return (
    <section aria-labelledby="shares">
      <h2 id="shares">{!isWatched ? "Quotas" : quota ? `Did ${quota} get its share?` : "Who got their share?"}</h2>
      {own && <Verdict line={own} />}
      {!quota && isWatched && <p class="empty">Choose a quota: the answer for it, its users and what it lost.</p>}
      {isWatched && (
        <ul class="legend">
          {PARTS.map(([name, style, sign, means]) => <li key={name}><span class={`key ${style}`}>{sign}</span> {means}</li>)}
        </ul>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label="Shares of quotas">
        <table class="quotas">
          <thead>
            <tr>
              <th scope="col">Quota</th>
              {isWatched && <th scope="col">With those below it</th>}
              {isWatched && COLUMNS.map(([name, title]) => <th key={name} scope="col" class="number">{title}</th>)}
              <th scope="col" class="number">Own pods</th>
            </tr>
          </thead>
          <tbody>
            {quotas.map((line, at) => (
              <tr key={line.quota ?? at}>
                <th scope="row"><span class={`depth-${Math.min(line.depth, 8)}`}><QuotaPick name={line.quota} /></span></th>
                {isWatched && <td class="bar-cell">{line.guaranteed !== null && <Bar line={line} largest={largest} />}</td>}
                {isWatched && COLUMNS.map(([name]) => <td key={name} class={`number${name === "owed" && line.owed ? " bad" : ""}`}>{hours(line[name] as number | null)}</td>)}
                <td class="number">{hours(line.held)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Download name="quotas" report={report}
        heading={["quota", "ownHeldMilliGpuMs", "ownGpuHours", ...COLUMNS.flatMap(([name]) => [`${name}MilliGpuMs`, `${name}GpuHours`])]}
        rows={quotas.map((line) => [line.quota, line.held, line.hours, ...COLUMNS.flatMap(([name]) => {
          const amount = line[name] as number | null;
          return [amount, exactly(amount)];
        })])} />
    </section>
  );
}

function sumOf(line: QuotaLine): number {
  return PARTS.reduce((sum, [name]) => sum + ((line[name] as number | null) ?? 0), 0);
}

function QuotaPick({ name }: { name: string | null }) {
  if (name === null) return <span class="none">others</span>;
  if (name === "") return <span class="none">no quota</span>;
  const params = Object.fromEntries(place.value.params);
  return <Link href={toList("usage", { ...params, quota: name })}>{name}</Link>;
}

function Bar({ line, largest }: { line: QuotaLine; largest: number }) {
  return (
    <div class="usage-bar" aria-hidden="true" style={{ width: `${(100 * sumOf(line)) / largest}%` }}>
      {PARTS.map(([name, style, sign]) => {
        const amount = (line[name] as number | null) ?? 0;
        return amount > 0 && <span key={name} class={style} style={{ flexGrow: String(amount) }}>{sign}</span>;
      })}
    </div>
  );
}

function Verdict({ line }: { line: QuotaLine }) {
  if (line.guaranteed === null) return <p>Nobody wrote down what was guaranteed to it: that is not known.</p>;
  const { guaranteed, withinMin, owed, idleMin, borrowed } = line;
  if (!guaranteed) return <p>Nothing is guaranteed to it. It used {hours(line.used)} hours of what others left idle.</p>;
  return (
    <p>
      {owed
        ? <strong class="bad">No: {hours(owed)} hours that were guaranteed to it, and asked for, it did not get. </strong>
        : <strong>Yes: it got its share whenever it asked for it. </strong>}
      It was guaranteed {hours(guaranteed)} hours, used {hours(withinMin)} of them, and did not ask for {hours(idleMin)}.
      {borrowed ? ` It borrowed ${hours(borrowed)} hours beyond its guarantee.` : ""}
    </p>
  );
}

// --- who used what ---------------------------------------------------------------------------------

interface Named {
  name: string | null;
  held: number;
  hours: string;
}

const BYS: Record<string, (report: UsageReport) => Named[]> = {
  namespace: (report) => report.namespaces.map((line) => ({ ...line, name: line.namespace })),
  user: (report) => report.users.map((line) => ({ ...line, name: line.user })),
  job: (report) => report.owners.map((line) => ({ ...line, name: line.owner })),
  model: (report) => report.models.map((line) => ({ ...line, name: line.model })),
};

function Users({ report }: { report: UsageReport }) {
  if (!report.held) return null;
  const chosen = place.value.params.get("by") ?? "";
  const by = chosen in BYS ? chosen : report.users.length ? "user" : "namespace";
  const lines = BYS[by]!(report);
  const others = by === "job" ? report.otherOwners : report.held - lines.reduce((sum, line) => sum + line.held, 0);
  const most = Math.max(1, others, ...lines.map((line) => line.held));
  const rest: Named[] = others > 0 ? [{ name: by === "job" ? "all other jobs" : "without a name", held: others, hours: exactly(others) }] : [];
  return (
    <section aria-labelledby="who">
      <h2 id="who">Who used what</h2>
      <div class="filters">
        <Filter label="For each" value={by} options={Object.keys(BYS)} isChoice onChange={(name) => setParams({ by: name })} />
      </div>
      {by === "user" && !report.users.length && (
        <p class="empty">No user is known: the label of pods that names them is <code>see.userLabel</code>, or <code>--user-label</code>.</p>
      )}
      {lines.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Usage by ${by}`}>
          <table class="quotas">
            <thead><tr><th scope="col">{by[0]!.toUpperCase() + by.slice(1)}</th><th scope="col">Share</th><th scope="col" class="number">Of all</th><th scope="col" class="number">Hours</th></tr></thead>
            <tbody>
              {[...lines, ...rest].map((line, at) => (
                <tr key={line.name ?? at}>
                  <th scope="row">{line.name || <span class="none">{line.name === null ? "others" : "none"}</span>}</th>
                  <td class="bar-cell"><div class="usage-bar" aria-hidden="true" style={{ width: `${(100 * line.held) / most}%` }}><span class="used" style={{ flexGrow: "1" }} /></div></td>
                  <td class="number">{((100 * line.held) / report.held).toFixed(1)} %</td>
                  <td class="number">{hours(line.held)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <Download name={by} report={report} heading={[by, "heldMilliGpuMs", "gpuHours"]} rows={lines.map((line) => [line.name, line.held, line.hours])} />
    </section>
  );
}

// --- what was lost ---------------------------------------------------------------------------------

const CAUSES: Record<string, string> = {
  Preempted: "preempted: its room was given to others", Reclaimed: "reclaimed: its quota used more than its share",
  Evicted: "evicted by somebody, or restarted with its gang", NodeLost: "its node was lost", Rejected: "refused by the kubelet",
};
const KNOWN: Record<string, string> = { Checkpoint: "since it was saved", AtMost: "at most: all since it began" };

function Lost({ report }: { report: UsageReport }) {
  const total = report.losses.reduce((sum, line) => sum + line.lost, 0);
  return (
    <section aria-labelledby="lost">
      <h2 id="lost">Lost to evictions</h2>
      {!total && <p class="empty">Nothing is known to be lost.</p>}
      {total > 0 && (
        <>
          <p>At most <strong>{hours(total)} hours</strong>: what evicted pods had held since their job last said that it saved its work, or else since they began.</p>
          <table class="small">
            <thead><tr><th scope="col">Why</th><th scope="col">For</th><th scope="col">How that is known</th><th scope="col" class="number">Hours</th></tr></thead>
            <tbody>
              {report.losses.map((line, at) => (
                <tr key={at}>
                  <td>{CAUSES[line.cause] ?? line.cause}</td><td>{line.by ?? <span class="none">–</span>}</td>
                  <td>{KNOWN[line.basis] ?? line.basis}</td><td class="number">{hours(line.lost)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <table class="small">
            <thead><tr><th scope="col">Job that lost it</th><th scope="col" class="number">Hours</th></tr></thead>
            <tbody>
              {report.losers.map((line, at) => <tr key={at}><td>{line.owner ?? <span class="none">others</span>}</td><td class="number">{hours(line.lost)}</td></tr>)}
            </tbody>
          </table>
          <Download name="lost" report={report} heading={["owner", "lostMilliGpuMs", "gpuHours"]}
            rows={report.losers.map((line) => [line.owner, line.lost, exactly(line.lost)])} />
        </>
      )}
    </section>
  );
}

// --- the whole cluster -----------------------------------------------------------------------------

const STATES: [keyof ClusterLine, string, string][] = [
  ["used", "used", "u"], ["reserved", "held", "r"], ["idle", "free", "i"], ["unusable", "stranded", "s"], ["broken", "broken", "!"], ["down", "down", "d"],
];

function AllGpus({ report }: { report: UsageReport }) {
  if (!report.cluster.length) return null;
  const sum = (line: ClusterLine) => STATES.reduce((total, [name]) => total + (line[name] as number), 0);
  return (
    <section aria-labelledby="all">
      <h2 id="all">All GPUs</h2>
      {report.cluster.map((line) => {
        const shares: Share[] = STATES.map(([name, style, sign]) => ({ name, amount: line[name] as number, sign, style }));
        return (
          <div key={line.model}>
            <p class="zone">{line.model || "model not known"}</p>
            <ShareBar label={line.model || "GPUs"} shares={shares} tell={(share) => `${share.name} ${hours(share.amount)} hours`} />
          </div>
        );
      })}
      <div class="scroll" tabIndex={0} role="region" aria-label="All GPUs by state">
        <table class="small">
          <thead><tr><th scope="col">Model</th>{STATES.map(([name, style, sign]) => <th key={name} scope="col" class="number"><span class={`key ${style}`} aria-hidden="true">{sign}</span>{name}</th>)}<th scope="col" class="number">All</th></tr></thead>
          <tbody>
            {report.cluster.map((line) => (
              <tr key={line.model}>
                <th scope="row">{line.model || <span class="none">not known</span>}</th>
                {STATES.map(([name]) => <td key={name} class="number">{hours(line[name] as number)}</td>)}
                <td class="number">{hours(sum(line))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Exactness({ report }: { report: UsageReport }) {
  const { unseenMs, uncertainMs, estimated, adjusted } = report;
  return (
    <section aria-labelledby="exact">
      <h2 id="exact">How exact this is</h2>
      <ul class="plain">
        {unseenMs === 0 && <li>Somebody watched all the time.</li>}
        {unseenMs !== null && unseenMs > 0 && <li>Nobody watched for {tellSeconds(Math.ceil(unseenMs / 1000))}: of that time less may be known.</li>}
        {unseenMs === null && <li>Nobody wrote down when somebody watched: what is missing is not known.</li>}
        <li>Ends of pods may differ by {tellSeconds(Math.ceil(uncertainMs / 1000))} altogether.</li>
        {estimated > 0 && <li>{hours(estimated)} hours are an estimate: pods that ask for memory of a GPU in bytes count as whole GPUs.</li>}
        {adjusted !== 0 && <li>{hours(adjusted)} hours of closed periods were told since, and are not in the tables.</li>}
      </ul>
    </section>
  );
}
