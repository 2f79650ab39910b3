// One unit: why it waits, what would help, what happened to it, and where its pods could go.
import { useEffect, useState } from "preact/hooks";
import { Actions } from "../actions";
import type { Envelope, Explanation, NodeOffer, QueueEntry, Remedies, Remedy, Story } from "../answers";
import { editsOf, writeEdits } from "../edits";
import { BASE, get, useFollowed, type Question } from "../live";
import { ClassBadge, Count, Gaps, Link, Missing, NodeName, QuotaName, Same, ShareBar, Since, tellSeconds, Things, Until } from "../parts";
import { place, to, toList, toUnit } from "../route";
import { keyOf } from "./queue";
import { tellAmounts } from "./quotas";

export function JobView(props: { parts: string[] }) {
  const [namespace = "", kind = "", name = ""] = props.parts;
  const end = `${encodeURIComponent(kind)}/${encodeURIComponent(name)}`;
  const path = `namespaces/${encodeURIComponent(namespace)}/explanations/${end}`;
  const { head, value, missing } = useFollowed({
    topic: "explanation", path, inPath: { namespace, kind, name },
  });
  const row = useRow(kind, `${namespace}/${name}`);
  const hash = place.value.hash;
  const isThere = value !== null;
  useEffect(() => {
    if (hash && isThere) document.getElementById(hash)?.scrollIntoView();
  }, [hash, isThere]);
  const stories = `namespaces/${encodeURIComponent(namespace)}/stories/${end}`;
  // What is gone is still told of, as long as there are records.
  if (!value) return <><Missing message={missing} />{missing && <StorySection value={null} path={stories} />}</>;
  const owner = value.owner;
  return (
    <>
      <Gaps gaps={head?.gaps} />
      {missing && <Missing message={`It is as it was last: ${missing}`} />}
      <p class="lead">
        <span class="badge">{value.standing}</span>
        {value.dominant && <ClassBadge name={value.dominant.class} />}
        {value.since && <span>since <Since at={value.since} /></span>}
        {owner && <span>of {owner.kind} {owner.name}</span>}
        {value.place && <span>on <Link href={to("node", value.place.node)}>{value.place.node}</Link></span>}
        <Link href={toList("queue", { ns: namespace })}>what waits in {namespace}</Link>
      </p>
      {value.standing === "Waiting" && (
        <Actions namespace={namespace} kind={kind} name={name} isHeld={value.reason?.code === "Held"} job={owner?.kind === "Job" ? owner.name : undefined} />
      )}
      <Why value={value} />
      {row && <When row={row} />}
      <Help value={value} remedies={`namespaces/${encodeURIComponent(namespace)}/remedies/${end}`} unit={`${kind}/${namespace}/${name}`} />
      <StorySection value={value} path={stories} />
      <Members value={value} />
      <Offers value={value} />
      <Same command={`koord explain ${kind} ${name} -n ${namespace}`} url={`${BASE}/${path}`} />
    </>
  );
}

/** Return which resources the nodes with a cause lack, as far as they are listed. */
function findShort(value: Explanation, cause: string): string[] {
  const nodes = (value.offers ?? []).flatMap((offer) => offer.nodes).filter((node) => node.refusal === cause);
  return [...new Set(nodes.flatMap((node) => node.short.map((short) => short.resource)))];
}

function Why({ value }: { value: Explanation }) {
  const sentence = value.dominant?.sentence ?? "";
  const message = value.reason?.message ?? "";
  return (
    <section aria-labelledby="why">
      <h2 id="why" tabIndex={-1}>Why</h2>
      <p class="sentence">{sentence || "There is nothing that it waits for."}</p>
      {message && message !== sentence && <p>{message}</p>}
      {value.reported && value.reported.message && value.reported.message !== message && (
        <p class="reported">The operators reported <Since at={value.reported.since} /> ago: {value.reported.message}</p>
      )}
      {[...value.warnings, ...value.notes].map((text) => <p key={text} class="reported">{text}</p>)}
      {value.nodes.length > 0 && (
        <table class="small">
          <caption>{value.dominant?.class === "Room" ? "Nodes that cannot take it" : "Not why it waits, but to know: nodes that cannot take it now"}</caption>
          <thead><tr><th scope="col" class="number">Nodes</th><th scope="col">Cause</th><th scope="col">Such as</th></tr></thead>
          <tbody>
            {value.nodes.map((cause) => (
              <tr key={cause.cause}>
                <td class="number"><Count of={cause.nodes} /></td>
                <td>{[cause.cause, ...findShort(value, cause.cause)].join(" ")}</td>
                <td>{cause.examples.map((node, at) => node && <span key={node}>{at > 0 && ", "}<Link href={to("node", node)}>{node}</Link></span>)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

/** Return what the queue says of a unit, if it waits. */
function useRow(kind: string, name: string): QueueEntry | undefined {
  const question: Question<"queue"> = {
    topic: "queue", path: "queue", params: { search: `${kind}/${name}`.slice(0, 64) }, keyOf,
  };
  const { rows } = useFollowed(question);
  return [...rows.values()].find((each) => each.names.includes(name));
}

/** Where it stands in its queue, and when it is expected to start. */
function When({ row }: { row: QueueEntry }) {
  const turn = row.turn;
  return (
    <section aria-labelledby="when">
      <h2 id="when">When</h2>
      <p>
        {turn?.position
          ? (
            <>Position <strong>{turn.position}</strong> of {turn.waiting} in <QuotaName name={turn.queue} />, {turn.ahead
              ? <>behind <Things of={turn.ahead} what="unit" /> with <Things of={turn.gpusAhead} what="GPU" /> that compete for the same</>
              : "and nobody before it competes for the same"}.</>
          )
          : row.position ? <>Position <strong>{row.position}</strong> in the order of planning, <Things of={row.gpusAhead} what="GPU" /> ahead.</> : "No position is known of it."}
        {" "}It has waited for <Since at={row.since} />.
      </p>
      <p class="sentence"><Start entry={row} /></p>
      {turn && turn.waitsFor.length > 0 && (
        <p>It waits for {turn.waitsFor.slice(0, MOST_AWAITED).map((each, at) => (
          <span key={at}>{at > 0 && ", "}{each.name ?? "a unit of others"}{each.end && <> (ends <Until at={each.end} />, {LEVELS[each.level] ?? each.level})</>}</span>
        ))}{turn.waitsFor.length > MOST_AWAITED && ` and ${turn.waitsFor.length - MOST_AWAITED} more`}.</p>
      )}
      {turn?.reservation && (
        <p>Room is held for it on {Object.keys(turn.reservation.nodes).slice(0, MOST_NAMED).map((node, at) => (
          <span key={node}>{at > 0 && ", "}<Link href={to("node", node)}>{node}</Link></span>
        ))}.</p>
      )}
      {turn?.lastMove?.from && (
        <p class="reported">It was promised another time before: {turn.lastMove.cause}{turn.lastMove.by && `, ${turn.lastMove.by}`}.</p>
      )}
    </section>
  );
}

const MOST_AWAITED = 3;
const LEVELS: Record<string, string> = {
  Declared: "its limit", Stated: "as stated", History: "as earlier runs did", Default: "by default",
};

function Start(props: { entry: QueueEntry }) {
  const turn = props.entry.turn;
  if (turn?.startNoLaterThan) return <>Starts <Until at={turn.startNoLaterThan} /> at the latest.</>;
  if (turn?.expectedStart) {
    return <>Expected to start <Until at={turn.expectedStart} /> ({turn.certainty === "Guess" ? "a guess" : "estimated"}).</>;
  }
  return <>{turn?.state === "NeverFits" ? "It would not start even if nothing else ran." : "When it starts is not known."}</>;
}

const ACTORS: Record<string, string> = {
  Owner: "you can", QuotaAdmin: "who manages quotas can", ClusterAdmin: "administrators can", Time: "happens by itself",
};

/** What would help: what is advised, and on demand what was tried on a copy and is enough. */
function Help(props: { value: Explanation; remedies: string; unit: string }) {
  const { value } = props;
  const [tried, setTried] = useState<Remedy[] | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let isLate = false;
    if (value.standing !== "Waiting") {
      setTried(null);
      return undefined;
    }
    get<Remedies>(props.remedies).then(
      (answer) => {
        if (isLate) return;
        setTried(answer.value.items);
        setProblem(answer.gaps.filter((gap) => gap.missing === "remedies").map((gap) => gap.then).join("; "));
      },
      () => { if (!isLate) setTried(null); },
    );
    return () => { isLate = true; };
  }, [props.remedies, value.standing, value.reason?.message]);
  if (!tried?.length && !value.advice.length) return null;
  return (
    <section aria-labelledby="help">
      <h2 id="help">What would help</h2>
      <ul class="plain">
        {tried?.map((remedy) => {
          const edits = remedy.verified.startsWith("Yes") ? editsOf(remedy.kind, remedy.change, props.unit) : null;
          return (
            <li key={remedy.id} class="line">
              <span><Tried verified={remedy.verified} /> {remedy.then}</span>
              <span class="badge">{ACTORS[remedy.by] ?? remedy.by}</span>
              {edits && <Link href={toList("whatif", { edits: writeEdits(edits) })}>what else would change</Link>}
            </li>
          );
        })}
        {value.advice.map((text) => <li key={text}>{text}</li>)}
      </ul>
      {problem && <p class="empty">{problem}.</p>}
    </section>
  );
}

/** What was seen when a remedy was tried on a copy: the sentence behind it says the same. */
function Tried({ verified }: { verified: string }) {
  if (verified === "YesInOrder") return <span class="tried">✓ tried, in turn</span>;
  if (verified === "Yes") return <span class="tried">✓ tried</span>;
  return <span class="none">{verified === "No" ? "✗ in vain" : "? not tried"}</span>;
}

/** Where the time of a unit went: the colour of a phase, as of the class of its reason. */
const PHASES: Record<string, string> = {
  Incomplete: "stranded", Held: "stranded", Misconfigured: "broken", Quota: "held", Room: "used", Running: "free",
};

/** What happened, newest first: asked for once, and again when it stands otherwise. */
function StorySection(props: { value: Explanation | null; path: string }) {
  const { value } = props;
  const [told, setTold] = useState<Envelope<Story> | null>(null);
  const [most, setMost] = useState(MOST_TOLD);
  useEffect(() => {
    let isLate = false;
    get<Story>(props.path).then((answer) => { if (!isLate) setTold(answer); }, () => undefined);
    return () => { isLate = true; };
  }, [props.path, value?.standing, value?.reason?.code]);
  const items = told?.value.items.toReversed()
    ?? (value?.history ?? []).map((each) => ({ at: each.time, what: each.what, text: each.why, by: each.by, source: "History" }));
  const phases = told?.value.phases ?? [];
  if (!items.length && !phases.length) return null;
  const shares = phases.map((each) => ({
    name: each.phase, amount: each.ms,
    sign: each.phase.slice(0, 1), style: PHASES[each.phase] ?? "soon",
  }));
  return (
    <section aria-labelledby="story">
      <h2 id="story">What happened</h2>
      {phases.length > 0 && (
        <>
          <ShareBar shares={shares} label="Where its time went" tell={(share) => `${share.name} ${tellSeconds(share.amount / 1000)}`} />
          <ol class="legend">
            {phases.map((each, at) => (
              <li key={at}><span class={`key ${PHASES[each.phase] ?? "soon"}`}>{each.phase.slice(0, 1)}</span>{each.phase} {tellSeconds(each.ms / 1000)}</li>
            ))}
            {told?.value.approximate && <li class="none">about: not all of it is recorded</li>}
          </ol>
        </>
      )}
      {told?.gaps.filter((gap) => gap.because === "NotStored").map((gap) => <p key={gap.then} class="empty">{gap.then}</p>)}
      <ol class="plain">
        {items.slice(0, most).map((item, at) => (
          <li key={`${at}${item.at}`}>
            <Since at={item.at} /> ago: <strong>{item.what}</strong> {item.text}
            {item.by && <span class="none"> by {item.by}</span>}
          </li>
        ))}
      </ol>
      {items.length > most && <button type="button" onClick={() => setMost(most + MOST_TOLD)}>earlier</button>}
    </section>
  );
}

const MOST_TOLD = 20;

function Members({ value }: { value: Explanation }) {
  if (!value.gang) return null;
  const counts = Object.entries(value.gang.members).filter(([name, count]) => count > 0 && name !== "total");
  return (
    <section aria-labelledby="members">
      <h2 id="members">Members</h2>
      <ul class="legend">
        {counts.map(([name, count]) => <li key={name}><strong><Count of={count} /></strong> {name}</li>)}
      </ul>
      {value.gang.group.length > 0 && (
        <table class="small">
          <thead><tr><th scope="col">Gang</th><th scope="col" class="number">Present</th><th scope="col" class="number">Needed</th></tr></thead>
          <tbody>
            {value.gang.group.map((each) => (
              <tr key={each.gang}><td>{each.gang ? <Link href={toUnit("podgroup", each.gang)}>{each.gang}</Link> : "–"}</td><td class="number">{each.present}</td><td class="number">{each.minMember}</td></tr>
            ))}
          </tbody>
        </table>
      )}
      {value.gang.nodes.length > 0 && (
        <p>On {value.gang.nodes.slice(0, MOST_NAMED).map((node, at) => <span key={node}>{at > 0 && ", "}<Link href={to("node", node)}>{node}</Link></span>)}
          {value.gang.nodes.length > MOST_NAMED && ` and ${value.gang.nodes.length - MOST_NAMED} more`}.</p>
      )}
    </section>
  );
}

const MOST_NAMED = 16;
const MOST_NODES = 20;

/** Say why a node takes no pod more. */
export function tellOffer(node: NodeOffer): string {
  const short = node.short.map(({ resource, asked, free }) => `${resource}: ${asked} asked, ${free} free`);
  const refusal = node.refusal === "Insufficient" && short.length ? "" : node.refusal;
  return [refusal, node.detail, ...short].filter(Boolean).join(", ");
}

function Offers({ value }: { value: Explanation }) {
  const offers = value.offers ?? [];
  if (!offers.length) return null;
  return (
    <section aria-labelledby="offers">
      <h2 id="offers">Nodes</h2>
      {offers.map((offer, at) => {
        const shown = [...offer.nodes].sort((a, b) => b.pods - a.pods);
        return (
          <table key={at} class="small">
            <caption><Things of={offer.pods} what="pod" /> with {tellAmounts(offer.requests)}{offer.pods > 1 && " each"}; <Count of={offer.fit} /> such pods fit now</caption>
            <thead><tr><th scope="col">Node</th><th scope="col" class="number">Room for</th><th scope="col">Why not for more</th></tr></thead>
            <tbody>
              {shown.slice(0, MOST_NODES).map((node, place) => (
                <tr key={node.node ?? place}>
                  <td><NodeName name={node.node} /></td>
                  <td class="number">{node.pods}</td>
                  <td>{tellOffer(node) || "–"}</td>
                </tr>
              ))}
            </tbody>
            {shown.length > MOST_NODES && <tfoot><tr><td colSpan={3} class="none">and {shown.length - MOST_NODES} more nodes</td></tr></tfoot>}
          </table>
        );
      })}
    </section>
  );
}
