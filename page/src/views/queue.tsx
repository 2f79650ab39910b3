// What waits, in the order of planning.
import type { QueueEntry } from "../answers";
import { BASE, loadMore, pathOf, useFollowed, type Question } from "../live";
import {
  ClassBadge, CLASSES, Count, Filter, Gaps, Link, Missing, Names, QuotaName, Same, Since, Table, tellCount, Until, type Column,
} from "../parts";
import { place, setParams, toList } from "../route";

// Parts that keep nothing are called, and not made components of: there are hundreds of cells.
const COLUMNS: Column<QueueEntry>[] = [
  { name: "#", width: 3.6, isNumber: true, cell: (row) => row.position || "–" },
  { name: "Unit", width: 13, cell: Names },
  { name: "Class", width: 8, cell: (row) => ClassBadge({ name: row.class }) },
  { name: "Why", cell: (row) => <span class="two" title={row.message}>{row.message}</span> },
  { name: "Pods", width: 4, isNumber: true, cell: (row) => tellCount(row.pods) },
  { name: "GPUs", width: 4.2, isNumber: true, cell: (row) => tellCount(row.gpus) },
  { name: "GPUs ahead", width: 7.3, isNumber: true, cell: (row) => (row.position ? tellCount(row.gpusAhead) : "–") },
  { name: "Waits", width: 7, isNumber: true, cell: (row) => Since({ at: row.since }) },
  { name: "Starts", width: 8, cell: tellStart },
  { name: "Quota", width: 7, cell: (row) => QuotaName({ name: row.quotas[0] ?? null }) },
];

function tellStart({ turn }: QueueEntry) {
  if (turn?.startNoLaterThan) return Until({ at: turn.startNoLaterThan, before: "latest " });
  if (turn?.expectedStart) return Until({ at: turn.expectedStart, before: turn.certainty === "Guess" ? "perhaps " : "" });
  return turn?.state === "NeverFits"
    ? <span title="It would not start even if nothing else ran.">never</span>
    : <span class="none" title="What it waits for has no end that is known.">not known</span>;
}

export function keyOf(row: QueueEntry): string {
  const hidden = row.names.every(Boolean) ? "" : `#${row.position ?? 0}.${row.since}`;
  return `${row.kind}/${row.names.map((name) => name ?? "").join()}${hidden}`;
}

export function QueueView() {
  const given = place.value.params;
  const read = (name: string) => given.get(name) ?? "";
  const params = { namespace: read("ns"), quota: read("quota"), class: read("class"), search: read("q").slice(0, 64) };
  const question: Question<"queue"> = { topic: "queue", path: "queue", params, keyOf };
  const { head, value, missing, order, rows, total } = useFollowed(question);
  const isFiltered = Object.values(params).some(Boolean);
  return (
    <>
      <Gaps gaps={head?.gaps} />
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Filter label="Name" value={params.search} isSearch onChange={(q) => setParams({ q })} />
        <Filter label="Namespace" value={params.namespace} onChange={(ns) => setParams({ ns })} />
        <Filter label="Quota" value={params.quota} onChange={(quota) => setParams({ quota })} />
        <Filter label="Class" value={params.class} options={CLASSES} onChange={(name) => setParams({ class: name })} />
        <output class="push"><Count of={total} /> waiting</output>
      </form>
      {value
        ? (
          <Table label="What waits" columns={COLUMNS} order={order} rows={rows} total={total}
            empty={isFiltered ? "Nothing that waits is like that." : "Nothing waits."}
            onMore={() => void loadMore(question)} />
        )
        : <Missing message={missing} />}
      {value && total === 0 && params.search && (
        <p>It may run, or have ended: <Link href={toList("time", { q: params.search })}>what is told of {params.search}</Link>.</p>
      )}
      <Same command="koord queue" url={`${BASE}/${pathOf(question)}`} />
    </>
  );
}
