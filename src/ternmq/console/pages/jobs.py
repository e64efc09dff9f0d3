"""Jobs: what runs, how far it is, what came of it; one of them, with stop and take back."""

from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.ids import check_name
from ternmq.jobs.job_admin import JobAdmin

ROWS = 100


async def job_list(console: Console, asked: AskedUrl) -> ShownPage:
    found = await JobAdmin(console.mq).list()
    facts = {"jobs": found[:ROWS], "total": len(found)}
    copy = CopyAs(cli=f"tern jobs list --url {console.url}", curl=curl_get(console.origin, "/jobs"))
    return ShownPage(
        template="jobs.html", title="Jobs", section="jobs", facts=facts, copy=copy, live=True
    )


async def job_page(console: Console, asked: AskedUrl) -> ShownPage:
    id = check_name("job", asked.names["job"])
    job = await JobAdmin(console.mq).show(id)
    facts = {"job": job, "recalls": job.work == "resend" and job.over and bool(job.counts)}
    copy = CopyAs(
        cli=f"tern jobs show {id} --url {console.url}",
        curl=curl_get(console.origin, f"/jobs/{id}"),
    )
    return ShownPage(
        template="job.html", title=id, section="jobs", facts=facts, copy=copy, live=True
    )
