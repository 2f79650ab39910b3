// What reservations hold, and for whom.
import type { ReservationUsage } from "../answers";
import { BASE, loadMore, useFollowed, type Question } from "../live";
import { Filter, Gaps, Link, Missing, Same, Table, tellSeconds, type Column } from "../parts";
import { place, setParams, to, toUnit } from "../route";
import { tellAmounts } from "./quotas";

const COLUMNS: Column<ReservationUsage>[] = [
  { name: "Name", width: 14, cell: (row) => row.name },
  { name: "Phase", width: 7, cell: (row) => row.phase },
  { name: "Node", width: 11, cell: (row) => (row.node ? <Link href={to("node", row.node)}>{row.node}</Link> : "–") },
  { name: "Reserved", cell: (row) => tellAmounts(row.reserved) },
  { name: "Used", cell: (row) => tellAmounts(row.used) },
  { name: "By", width: 14, cell: (row) => (row.by[0] ? <><Link href={toUnit("pod", row.by[0])}>{row.by[0]}</Link>{row.by.length > 1 && ` and ${row.by.length - 1} more`}</> : "–") },
  { name: "Ends", width: 8, isNumber: true, cell: (row) => (row.secondsLeft === null ? "never" : `in ${tellSeconds(row.secondsLeft)}`) },
];
const PHASES = ["Pending", "Available", "Succeeded", "Failed"];

export function ReservationsView() {
  const given = place.value.params;
  const params = { phase: given.get("phase") ?? "", node: given.get("node") ?? "", search: (given.get("q") ?? "").slice(0, 64) };
  const question: Question<"reservations"> = { topic: "reservations", path: "reservations", params, keyOf: (row) => row.name };
  const { head, value, missing, order, rows, total } = useFollowed(question);
  return (
    <>
      <Gaps gaps={head?.gaps} />
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Filter label="Name" value={params.search} isSearch onChange={(q) => setParams({ q })} />
        <Filter label="Phase" value={params.phase} options={PHASES} onChange={(phase) => setParams({ phase })} />
        <Filter label="Node" value={params.node} onChange={(node) => setParams({ node })} />
      </form>
      {value
        ? <Table label="Reservations" columns={COLUMNS} order={order} rows={rows} total={total}
          empty="There are no reservations." onMore={() => void loadMore(question)} />
        : <Missing message={missing} />}
      <Same command="koord reservation list" url={`${BASE}/reservations`} />
    </>
  );
}
