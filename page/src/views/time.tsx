// What happened in the cluster, newest first: who was placed, refused or evicted when, and what broke.
import type { TimelineEntry } from "../answers";
import { BASE, clockAhead, loadMore, pathOf, useFollowed, type Question } from "../live";
import {
  ClassBadge, CLASSES, Copyable, Count, Filter, Gaps, Link, Missing, Same, Table, tellTime, tellZone, type Column,
} from "../parts";
import { place, setParams, to, toUnit } from "../route";

const COLUMNS: Column<TimelineEntry>[] = [
  { name: "When", width: 14.5, cell: (row) => <time dateTime={row.at} title={row.at}>{tellTime(row.at)}</time> },
  { name: "What", width: 13, cell: (row) => (row.class ? <><ClassBadge name={row.class} /> {row.what}</> : row.what) },
  { name: "To", width: 14, cell: (row) => <Subject row={row} /> },
  { name: "Why", cell: (row) => <span class="two" title={row.text}>{row.text}</span> },
  { name: "For", width: 9, cell: (row) => row.by ?? "" },
  { name: "Told by", width: 7, cell: (row) => SOURCES[row.source] ?? row.source },
];
const SOURCES: Record<string, string> = {
  Audit: "records", History: "PodGroup", Condition: "conditions", Event: "events",
};

export function Subject({ row }: { row: TimelineEntry }) {
  if (row.kind === "node" || row.kind === "device") return <Link href={to("node", row.ref)}>{row.ref}</Link>;
  if (row.kind === "pod" || row.kind === "podgroup") return <Link href={toUnit(row.kind, row.ref)}>{row.ref}</Link>;
  return <>{row.kind} {row.ref}</>;
}

const HOUR = 3_600_000;
const PRESETS: [string, number][] = [["last hour", HOUR], ["last 24 hours", 24 * HOUR], ["all", 0]];
const BARS = 48;

export function TimeView() {
  const given = place.value.params;
  const read = (name: string) => given.get(name) ?? "";
  const params = {
    sort: "-at", from: read("from"), to: read("to"), namespace: read("ns"), class: read("class"), what: read("what"),
    search: read("q").slice(0, 64),
  };
  const question: Question<"decisions"> = { topic: "decisions", path: "decisions", params, keyOf: (row) => row.key, most: 1000 };
  const { head, value, missing, order, rows, total } = useFollowed(question);
  const isFiltered = Object.entries(params).some(([name, text]) => name !== "sort" && text);
  return (
    <>
      <Gaps gaps={head?.gaps} />
      {head?.gaps.some((gap) => gap.because === "NoFeed") && (
        <p class="empty">
          The leader keeps records if the operators have <code>audit.feed: true</code>. Operators in the cluster: forward the port of the
          pod that leads, and begin with <Copyable text="koord page --feed 127.0.0.1:8080" />.
        </p>
      )}
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Filter label="Name" value={params.search} isSearch onChange={(q) => setParams({ q })} />
        <Filter label="Namespace" value={params.namespace} onChange={(ns) => setParams({ ns })} />
        <Filter label="Class" value={params.class} options={CLASSES} onChange={(name) => setParams({ class: name })} />
        <Moment label="From" value={params.from} onChange={(from) => setParams({ from })} />
        <Moment label="Until" value={params.to} onChange={(end) => setParams({ to: end })} />
        {PRESETS.map(([name, length]) => (
          <button key={name} type="button"
            onClick={() => setParams({ from: length ? new Date(Date.now() - clockAhead.value - length).toISOString() : "", to: "" })}>{name}</button>
        ))}
        <output class="push"><Count of={total} /> {total === 1 ? "entry" : "entries"}</output>
      </form>
      {order.length > 1 && <Spread keys={order} />}
      <p class="zone">Times are those of {tellZone()}.</p>
      {value
        ? (
          <Table label="What happened" columns={COLUMNS} order={order} rows={rows} total={total}
            empty={isFiltered ? "Nothing of that is known." : "Nothing is known to have happened."}
            onMore={() => void loadMore(question)} />
        )
        : <Missing message={missing} />}
      <Same command="koord history" url={`${BASE}/${pathOf(question)}`} />
    </>
  );
}

/** When how much happened, of what is loaded: a column is a link to its time. The table says the same. */
function Spread({ keys }: { keys: string[] }) {
  const times = keys.map((key) => Date.parse(key.slice(0, key.indexOf(" ")))).filter(Number.isFinite);
  const [last, first] = [Math.max(...times), Math.min(...times)];
  const width = Math.max(1000, Math.ceil((last - first + 1) / BARS));
  const counts = new Array<number>(BARS).fill(0);
  for (const at of times) counts[Math.min(BARS - 1, Math.floor((at - first) / width))]! += 1;
  const most = Math.max(...counts);
  return (
    <>
    <div class="spread" aria-label="When how much happened" role="group">
      {counts.map((count, at) => {
        const [from, end] = [new Date(first + at * width), new Date(first + (at + 1) * width)];
        const text = `${count} from ${tellTime(from.toISOString())} to ${tellTime(end.toISOString())}`;
        if (!count) return <span key={at} />;
        return (
          <button key={at} type="button" title={text} aria-label={text} style={{ height: `${Math.max(12, (100 * count) / most)}%` }}
            onClick={() => setParams({ from: from.toISOString(), to: end.toISOString() })} />
        );
      })}
    </div>
    <div class="ends"><Tick at={first} /><Tick at={first + width * BARS / 2} /><Tick at={first + width * BARS} /></div>
    </>
  );
}

/** A time below the diagram. */
function Tick({ at }: { at: number }) {
  const text = new Date(at).toISOString();
  return <time dateTime={text} title={text}>{tellTime(text)}</time>;
}

/** A time in the zone of the reader; the address has it in UTC. */
function Moment(props: { label: string; value: string; onChange: (value: string) => void }) {
  const at = Date.parse(props.value);
  const shown = Number.isFinite(at) ? new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
  return (
    <label class="filter"><span>{props.label}</span>
      <input type="datetime-local" value={shown} onChange={(event) => {
        const chosen = new Date(event.currentTarget.value);
        props.onChange(Number.isFinite(chosen.getTime()) ? chosen.toISOString() : "");
      }} />
    </label>
  );
}
