// The cluster at a glance.
import { useEffect } from "preact/hooks";
import { numberOf } from "../amounts";
import type { HealthFinding, Page, QuotaView, TimelineEntry } from "../answers";
import { BASE, useFollowed, type Followed } from "../live";
import { ClassBadge, CLASSES, Count, Gaps, isUnread, Link, Missing, Names, QuotaName, Same, ShareBar, Since, Things, type Share } from "../parts";
import { go, isFirst, to, toList } from "../route";
import { keyOf as keyOfFinding, Subject } from "./health";
import { Subject as Happened } from "./time";
import { findOwed, findResources, QuotaBar, scaleOf, useAllQuotas } from "./quotas";

const MOST_SHOWN = 5;

/** The quotas that matter most: who is over its share, who is owed some of it, who uses most. */
function QuotaCard(props: { over: (string | null)[]; followed: Followed<Page<QuotaView>> }) {
  const { head, rows } = props.followed;
  const quotas = [...rows.values()].filter((quota) => !quota.isParent);
  const resource = findResources(quotas)[0] ?? "";
  const read = (amounts: Record<string, string>) => numberOf(amounts[resource]);
  const owedTo = (quota: QuotaView) => findOwed(quota, resource);
  const shown = [...quotas]
    .sort((a, b) => read(b.over) - read(a.over) || owedTo(b) - owedTo(a) || read(b.used) - read(a.used))
    .slice(0, MOST_SHOWN);
  const largest = Math.max(1, ...shown.map((quota) => scaleOf(quota, resource)));
  return (
    <section class="card" aria-labelledby="shares">
      <h2 id="shares"><Link href={to("quotas")}>Quotas</Link> <small>{resource && `${resource}: used of what it is entitled to`}</small></h2>
      {shown.length === 0 && <p class="empty">{isUnread(head?.gaps, "elasticquotas") ? "Which quotas there are is not known." : "There are no quotas."}</p>}
      <ul class="plain">
        {shown.map((quota) => (
          <li key={quota.name}>
            <div class="line">
              <QuotaName name={quota.name} />
              <span class="push">
                {quota.used[resource] ?? "0"} of {quota.entitled[resource] ?? "–"}
                {quota.over[resource] && <strong class="bad"> over by {quota.over[resource]}</strong>}
                {owedTo(quota) > 0 && <strong> owed {owedTo(quota).toLocaleString("en")}</strong>}
              </span>
            </div>
            <QuotaBar quota={quota} resource={resource} largest={largest} />
          </li>
        ))}
      </ul>
      {props.over.length > MOST_SHOWN && <p><Link href={to("quotas")}>{props.over.length} are over their share</Link></p>}
    </section>
  );
}

function SickCard(props: { count: number; followed: Followed<Page<HealthFinding>> }) {
  const { order, rows } = props.followed;
  const shown = order.slice(0, MOST_SHOWN).map((key) => rows.get(key)).filter((row) => row !== undefined);
  return (
    <section class="card" aria-labelledby="sick">
      <h2 id="sick"><Link href={to("health")}>Sick</Link></h2>
      {props.count === 0 && <p class="empty">All is well.</p>}
      <ul class="plain">
        {shown.map((row) => (
          <li key={keyOfFinding(row)} class="line">
            <Subject row={row} /> <span class={row.severity === "Error" ? "bad" : ""}>{row.reason}</span>
            <span class="push">
              {row.gpusOut > 0 && <><Things of={row.gpusOut} what="GPU" /> out</>}
              {row.gpusOut > 0 && row.since && ", "}{row.since && <Since at={row.since} />}
            </span>
          </li>
        ))}
      </ul>
      {props.count > shown.length && <p><Link href={to("health")}>all <Count of={props.count} /></Link></p>}
    </section>
  );
}

/** What happened last: who asks what broke in the night finds the rest behind it. */
function LatelySection({ followed }: { followed: Followed<Page<TimelineEntry>> }) {
  const shown = followed.order.map((key) => followed.rows.get(key)).filter((row) => row !== undefined);
  return (
    <section aria-labelledby="lately">
      <h2 id="lately"><Link href={to("time")}>What happened</Link> {followed.total > shown.length && <small><Count of={followed.total} /> entries</small>}</h2>
      {shown.length === 0 && <p class="empty">Nothing is known to have happened.</p>}
      <ol class="plain">
        {shown.map((row) => (
          <li key={row.key} class="line">
            <Since at={row.at} /> ago <strong>{row.what}</strong> <Happened row={row} /> <span class="none">{row.text}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Where the GPUs of a part are listed. */
const LISTS: Record<string, string> = {
  held: to("reservations"),
  free: toList("map", { color: "free" }),
  stranded: toList("map", { color: "health" }),
  broken: to("health"),
  down: to("health"),
};

export function OverviewView() {
  const { head, value, missing } = useFollowed({ topic: "overview", path: "overview" });
  const quotas = useAllQuotas();
  const sick = useFollowed({ topic: "health", path: "health", keyOf: keyOfFinding });
  const lately = useFollowed({ topic: "decisions", path: "decisions", params: { sort: "-at" }, keyOf: (row) => row.key, most: MOST_SHOWN });
  // Who sees her own namespace only wants to know of her own units first.
  const isRestricted = head?.gaps.some((gap) => gap.missing === "pods of other namespaces") ?? false;
  useEffect(() => {
    if (isRestricted && isFirst()) go(to("queue"), true);
  }, [isRestricted]);
  if (!value) return <Missing message={missing} />;
  const { gpus } = value;
  const shares: Share[] = [
    { name: "used", amount: gpus.used, sign: "", style: "used" },
    { name: "held by reservations", amount: gpus.held, sign: "r", style: "held" },
    { name: "free", amount: gpus.free, sign: "", style: "free" },
    { name: "stranded", amount: gpus.stranded, sign: "s", style: "stranded" },
    { name: "broken", amount: gpus.broken, sign: "x", style: "broken" },
    { name: "on nodes that are down", amount: gpus.down, sign: "d", style: "down" },
  ];
  const waiting = CLASSES.filter((name) => value.waiting[name]);
  const units = waiting.reduce((sum, name) => sum + (value.waiting[name] ?? 0), 0);
  return (
    <>
      <Gaps gaps={head?.gaps} />
      <section aria-labelledby="gpus">
        <h2 id="gpus"><Link href={to("map")}>GPUs</Link></h2>
        {isUnread(head?.gaps, "nodes") && <p class="empty">How many GPUs there are is not known.</p>}
        {!isUnread(head?.gaps, "nodes") && gpus.total === 0 && <p class="empty">No node has GPUs.</p>}
        {gpus.total > 0 && (
          <>
            <ShareBar shares={shares} label={`${gpus.total} GPUs`} tell={(share) => `${share.amount} ${share.name}`} />
            <ul class="legend">
              {shares.map((share) => (
                <li key={share.name}>
                  <span class={`key ${share.style}`}>{share.sign}</span>
                  <Link href={LISTS[share.style] ?? to("map")}><Count of={share.amount} /></Link> {share.name}
                </li>
              ))}
              <li>of <strong><Count of={gpus.total} /></strong></li>
              <li class="push"><Link href={to("whatif")}>Where is room?</Link></li>
            </ul>
          </>
        )}
      </section>
      <section aria-labelledby="waiting">
        <h2 id="waiting">
          <Link href={to("queue")}>{units ? `${units.toLocaleString("en")} waiting` : "Nothing waits"}</Link>
          {units > 0 && <small> <Things of={value.waitingPods} what="pod" /></small>}
        </h2>
        <ul class="chips">
          {waiting.map((name) => (
            <li key={name}>
              <Link href={toList("queue", { class: name })}>
                <ClassBadge name={name} /> <Count of={value.waiting[name] ?? 0} />
              </Link>
            </li>
          ))}
        </ul>
      </section>
      <div class="cards">
        <section class="card" aria-labelledby="longest">
          <h2 id="longest"><Link href={to("queue")}>Waits longest</Link></h2>
          {value.longest.length === 0 && <p class="empty">Nothing waits.</p>}
          <ol class="plain">
            {value.longest.map((entry) => (
              <li key={entry.names.join()}>
                <div class="line">
                  <Names kind={entry.kind} names={entry.names} /> <ClassBadge name={entry.class} />
                  <span class="push"><Since at={entry.since} /></span>
                </div>
                <p class="why">{entry.message}</p>
              </li>
            ))}
          </ol>
        </section>
        <QuotaCard over={value.over} followed={quotas} />
        <SickCard count={value.sick} followed={sick} />
      </div>
      <LatelySection followed={lately} />
      <Same command="koord watch" url={`${BASE}/overview`} />
    </>
  );
}
