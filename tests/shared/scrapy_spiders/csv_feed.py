"""A CSVFeedSpider."""

from scrapy.spiders import CSVFeedSpider


class TableSpider(CSVFeedSpider):
    name = "csv_feed"
    delimiter = ";"
    quotechar = "'"
    custom_settings = {"DOWNLOAD_DELAY": 0}

    def __init__(self, *args, site, **kwargs):
        super().__init__(*args, **kwargs)
        self.start_urls = [f"{site}table.csv"]

    def adapt_response(self, response):
        return response.replace(body=response.body.upper())

    def parse_row(self, response, row):
        return dict(row)
